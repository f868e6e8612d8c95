package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// itemLine is an item as --json prints it.
type itemLine struct {
	ID     string
	Status string
	Errors []string
	cli.Payload
	History []struct {
		At      time.Time
		Gate    int
		Attempt int
		Error   string
	}
}

func itemLines(t *testing.T, db string, args ...string) (list []itemLine) {
	t.Helper()
	r := jetpullFeed(t, db, "", append(args, "--json")...)
	require.Zero(t, r.code, r.err)
	for line := range strings.Lines(r.out) {
		var it itemLine
		require.NoError(t, json.Unmarshal([]byte(line), &it))
		list = append(list, it)
	}
	return list
}

// An operator sees how many items retry and skip changed, and what failed before a retry that succeeded.
func TestRetryAndSkipSayWhatTheyDid(t *testing.T) {
	db := newDB(t)
	require.Zero(t, jetpullFeed(t, db, "a\nb\nc\n", "add", "p").code)
	var fixed atomic.Bool
	stop := startWatcher(t, db, func(w http.ResponseWriter, _ *http.Request) {
		if !fixed.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"error":{"message":"the model is loading"}}`)
			return
		}
		_, _ = io.WriteString(w, `{"done":true}`)
	}, "--max-retries", "1")
	awaitStatus(t, db, "p", "Failed")
	items := itemLines(t, db, "ls", "p")
	require.Len(t, items, 3)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"skip", "p", items[2].ID}, `{"partition":"p","items":1}`},
		{[]string{"retry", "p"}, `{"partition":"p","items":2}`},
		{[]string{"skip", "empty"}, `{"partition":"empty","items":0}`},
		{[]string{"retry", "empty"}, `{"partition":"empty","items":0}`},
		{[]string{"advance", "empty", "3"}, `{"partition":"empty"}`},
		{[]string{"close", "empty"}, `{"partition":"empty"}`},
		{[]string{"reopen", "empty"}, `{"partition":"empty"}`},
	} {
		if tt.args[1] == "empty" {
			jetpullFeed(t, db, "", "add", "empty")
		}
		fixed.Store(tt.args[0] == "retry")
		r := jetpullFeed(t, db, "", tt.args...)
		require.Equal(t, result{out: tt.want + "\n"}, r, "%q", tt.args)
		if tt.args[1] == "p" && tt.args[0] == "retry" {
			require.Eventually(t, func() bool {
				return len(itemLines(t, db, "ls", "p", "--status", "complete")) == 3
			}, 30*time.Second, 20*time.Millisecond)
		}
	}
	require.Equal(t, cli.ExitDone, stop())

	text := jetpullFeed(t, db, "", "show", "p", items[0].ID).out
	require.Contains(t, text, "Complete")
	require.Equal(t, 2, strings.Count(text, `"answered with status 503: the model is loading"`), text)
	it := itemLines(t, db, "show", "p", items[0].ID)[0]
	require.Empty(t, it.Errors, "they are of the present step, which was begun again")
	require.Len(t, it.History, 2)
	require.Equal(t, 2, it.History[1].Attempt)
	require.Contains(t, it.History[1].Error, "the model is loading")
	require.WithinDuration(t, time.Now(), it.History[1].At, time.Minute)
}

// Lists have a header, and can be of one status. JSON has the data as text too.
func TestListsHaveAHeader(t *testing.T) {
	db := newDB(t)
	require.Zero(t, jetpullFeed(t, db, "plain\n{\"a\":1}\n\xff\xfe\n\n", "add", "p", "--seal").code)
	require.Zero(t, jetpullFeed(t, db, "", "add", "closed").code)
	require.Zero(t, jetpullFeed(t, db, "", "close", "closed").code)
	rows := func(args ...string) (list []string) {
		r := jetpullFeed(t, db, "", args...)
		require.Zero(t, r.code, r.err)
		for line := range strings.Lines(r.out) {
			list = append(list, strings.Join(strings.Fields(line), " "))
		}
		return list
	}
	require.Equal(t, []string{"id status gate sealed owner", "closed Complete 0 false", "p Available 0 true"}, slices.Delete(rows("ls"), 1, 2))
	require.Equal(t, []string{"id status gate sealed owner", "closed Complete 0 false"}, slices.Delete(rows("ls", "--status", "Complete"), 1, 2))
	of := rows("ls", "p", "--status", "available")
	require.Len(t, of, 6)
	require.Equal(t, "id status gate attempt data", of[0])
	require.Regexp(t, `^[A-Za-z0-9]{22} Available 0 0 plain$`, of[2])
	require.Equal(t, result{err: "nothing found\n"}, jetpullFeed(t, db, "", "ls", "p", "--status", "failed"))
	require.Equal(t, []string{"plain", `{"a":1}`, "\xff\xfe", ""}, rows("ls", "p", "--data"), "data has no header")
	r := jetpullFeed(t, db, "", "ls", "--status", "done")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, `--status "done": give Available, Complete or Failed`)
	r = jetpullFeed(t, db, "", "show", "nobody", "--json")
	require.Equal(t, cli.ExitError, r.code)
	require.Regexp(t, `^\{"error":".*nobody.*","code":1\}\n$`, r.err)

	items := itemLines(t, db, "ls", "p")
	require.Len(t, items, 4)
	for i, want := range []string{"plain", `{"a":1}`, "", ""} {
		if i == 2 {
			require.Nil(t, items[i].Data, "it is no text")
			require.Equal(t, "//4=", *items[i].DataBase64)
			continue
		}
		require.Equal(t, want, *items[i].Data)
		require.Nil(t, items[i].DataBase64)
	}
}

// watch counts items that pass a gate, not only those that are Complete.
func TestWatchCountsWhatPassesAGate(t *testing.T) {
	db := newDB(t)
	require.Zero(t, jetpullFeed(t, db, strings.Repeat("x\n", 60), "add", "p").code)
	pass := make(chan struct{})
	release := sync.OnceFunc(func() { close(pass) })
	t.Cleanup(release) // a failure leaves no handler that waits
	stop := startWatcher(t, db, func(w http.ResponseWriter, _ *http.Request) {
		<-pass
		_, _ = io.WriteString(w, `{"gate":1}`)
	}, "--concurrency", "1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errOut buffer
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, []string{"feed", "watch", "--db", db, "--json", "--interval", "100ms"}, strings.NewReader(""), &out, &errOut)
	}()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), `"at_gate":60,"above":0,`) }, 30*time.Second, 10*time.Millisecond)
	for range 30 {
		pass <- struct{}{}
	}
	require.Eventually(t, func() bool {
		return regexp.MustCompile(`"gate":0,.*"at_gate":3[01],"above":(29|30),"below":0,"steps":(29|30),`).MatchString(out.String())
	}, 30*time.Second, 10*time.Millisecond, "%s", &out)
	require.Regexp(t, `"complete":0,.*"rate":[1-9]`, out.String())
	release()
	cancel()
	require.Equal(t, cli.ExitDone, <-code, errOut.String())
	require.Equal(t, cli.ExitDone, stop())
}

// Partitions that were closed are deleted by age, after an export that has all their items.
func TestPruneAndExport(t *testing.T) {
	db, file := newDB(t), filepath.Join(t.TempDir(), "closed.ndjson")
	require.Zero(t, jetpullFeed(t, db, "a\nb\n", "add", "p", "--seal").code)
	require.Zero(t, jetpullFeed(t, db, "c\n", "add", "open").code)
	stop := startWatcher(t, db, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"done":true}`) }, "--auto-close")
	awaitStatus(t, db, "p", "Complete")
	stop()
	require.Equal(t, result{out: `{"items":0,"partitions":0}` + "\n"}, jetpullFeed(t, db, "", "prune", "--older-than", "1h"))
	require.Equal(t, 2, jetpullFeed(t, db, "", "prune").code, "the age is needed")
	require.Equal(t, 2, jetpullFeed(t, db, "", "prune", "--older-than", "-1h").code)
	r := jetpullFeed(t, db, "", "prune", "--older-than", "0s", "--export", filepath.Join(file, "no folder"))
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "--export")
	r = jetpullFeed(t, db, "", "prune", "--older-than", "0s", "--export", "")
	require.Equal(t, 2, r.code, "as of a shell's unset variable")
	require.Contains(t, r.err, "--export: it is empty; give a file, or leave it out")
	require.Len(t, itemLines(t, db, "ls", "p"), 2, "nothing was deleted")

	r = jetpullFeed(t, db, "", "prune", "--older-than", "0s", "--export", file, "--json")
	require.Equal(t, result{out: `{"items":2,"partitions":1}` + "\n"}, r)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var exported []string
	for line := range strings.Lines(string(text)) {
		var it itemLine
		require.NoError(t, json.Unmarshal([]byte(line), &it))
		exported = append(exported, *it.Data)
	}
	require.ElementsMatch(t, []string{"a", "b"}, exported)
	require.NotZero(t, jetpullFeed(t, db, "", "show", "p").code)
	require.Len(t, itemLines(t, db, "ls", "open"), 1)
}

// A gate that is to open later holds its items until then.
func TestGateOpensLater(t *testing.T) {
	db := newDB(t)
	require.Zero(t, jetpullFeed(t, db, "a\n", "add", "p").code)
	require.Zero(t, jetpullFeed(t, db, "b\n", "add", "p", "--gate", "2", "--open-after", "10ms", "--open-at", "2020-01-01T00:00:00Z", "--seal").code)
	require.Zero(t, jetpullFeed(t, db, "c\n", "add", "later", "--gate", "1", "--open-at", "2999-01-01T00:00:00Z").code)
	for want, wrong := range map[string][]string{
		"gate 0 is open from the beginning":               {"--open-after", "1h"},
		`--open-at "tomorrow" is not a time`:              {"--gate", "1", "--open-at", "tomorrow"},
		`--open-at "" is not a time`:                      {"--gate", "1", "--open-at", ""},
		"the year is 0":                                   {"--gate", "1", "--open-at", "0000-01-01T00:00:00Z"},
		"--open-after -1s is not in 0s..8760h0m0s":        {"--gate", "1", "--open-after", "-1s"},
		"--open-after 99999h0m0s is not in 0s..8760h0m0s": {"--gate", "1", "--open-after", "99999h"},
	} {
		r := jetpullFeed(t, db, "", append([]string{"add", "new"}, wrong...)...)
		require.Equal(t, 2, r.code, r.err)
		require.Contains(t, r.err, want)
	}
	var bodies sync.Map
	stop := startWatcher(t, db, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies.Store(string(body), true)
		_, _ = io.WriteString(w, `{"done":true}`)
	}, "--auto-close")
	awaitStatus(t, db, "p", "Complete")
	stop()
	var got []string
	bodies.Range(func(body, _ any) bool { got = append(got, body.(string)); return true })
	require.ElementsMatch(t, []string{"a", "b"}, got)
}

// An item that another program has inserted below the gate is listed, and counted by the view.
func TestItemsBelowTheGateAreShown(t *testing.T) {
	db := newDB(t)
	require.Zero(t, jetpullFeed(t, db, "a\n", "add", "p", "--gate", "2").code)
	require.Zero(t, jetpullFeed(t, db, "", "advance", "p", "2").code)
	other, err := sql.Open("sqlite", strings.TrimPrefix(db, "sqlite:"))
	require.NoError(t, err)
	defer other.Close()
	_, err = other.ExecContext(t.Context(), "INSERT INTO items (partition_id, id, gate, status, version) VALUES ('p', 'late', 1, 'Available', 1)")
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(itemLines(t, db, "ls", "p")), "late")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out buffer
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, []string{"feed", "watch", "--db", db, "--json", "--interval", "100ms"}, strings.NewReader(""), &out, io.Discard)
	}()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), `"at_gate":1,"above":0,"below":1,`) }, time.Minute, 10*time.Millisecond, "%s", &out)
	cancel()
	<-code
}

// An operator sees what runs, cancels it, and deletes what waits.
func TestFeedPsCancelAndDelete(t *testing.T) {
	db := newDB(t)
	require.Zero(t, jetpullFeed(t, db, "a\n", "add", "p").code)
	require.Zero(t, jetpullFeed(t, db, "b\n", "add", "p", "--gate", "1").code)
	items := itemLines(t, db, "ls", "p")
	r := jetpullFeed(t, db, "", "ps")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "no running items")
	var calls atomic.Int64
	stop := startWatcher(t, db, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			_, _ = io.Copy(io.Discard, r.Body) // or the end of the connection is not noticed
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, `{"done":true}`)
	}, "--lease", "300ms")
	require.Eventually(t, func() bool {
		r = jetpullFeed(t, db, "", "ps")
		require.Zero(t, r.code, r.err)
		return strings.Contains(r.out, items[0].ID)
	}, time.Minute, 10*time.Millisecond)
	require.Regexp(t, `(?m)^p +`+items[0].ID+` +0 +1 +\S+ \S+ +\S+ +\d+ +\w+`, r.out)
	r = jetpullFeed(t, db, "", "delete", "p", items[0].ID)
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, "may have read it")
	r = jetpullFeed(t, db, "", "delete", "p", items[1].ID)
	require.Equal(t, `{"partition":"p","items":1}`+"\n", r.out)
	r = jetpullFeed(t, db, "", "cancel", "p", items[1].ID)
	require.Equal(t, cli.ExitError, r.code, r.err)
	r = jetpullFeed(t, db, "", "cancel", "p", items[0].ID)
	require.Zero(t, r.code, r.err)
	require.Equal(t, `{"partition":"p","within":0.1}`+"\n", r.out)
	require.Eventually(t, func() bool { return itemLines(t, db, "ls", "p")[0].Status == "Complete" }, time.Minute, 10*time.Millisecond)
	require.Contains(t, itemLines(t, db, "show", "p", items[0].ID)[0].History[0].Error, "cancelled")
	require.Len(t, itemLines(t, db, "ls", "p"), 1)
	require.Zero(t, stop())
}
