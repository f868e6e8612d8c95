package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// jetpullFeed runs a command of the feed on a database.
func jetpullFeed(t *testing.T, db, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out, errOut buffer
	code := execute(ctx, append([]string{"feed", "--db", db}, args...), strings.NewReader(stdin), &out, &errOut)
	require.NoError(t, ctx.Err(), "it hangs: %q\n%s", args, errOut.String())
	return result{code, out.String(), errOut.String()}
}

// startWatcher runs jetpull feed until the returned function stops it and gives its exit code.
func startWatcher(t *testing.T, db string, handler http.HandlerFunc, args ...string) (stop func() int) {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	code := make(chan int, 1)
	args = append([]string{"feed", "--db", db, "--handler", srv.URL, "--poll-min", "10ms", "--backoff", "1ms"}, args...)
	go func() { code <- execute(ctx, args, strings.NewReader(""), io.Discard, io.Discard) }()
	return func() int {
		cancel()
		select {
		case c := <-code:
			return c
		case <-time.After(30 * time.Second):
			t.Fatal("jetpull feed does not end")
			return -1
		}
	}
}

func TestFeedFromTheShell(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "feed.db")
	require.Equal(t, result{out: "{\"partition\":\"p\",\"items\":3}\n"}, jetpullFeed(t, db, "a\n\nc", "add", "p"))
	require.Equal(t, result{out: "{\"partition\":\"p\",\"items\":1}\n"}, jetpullFeed(t, db, "last\n", "add", "p", "--gate", "2", "--seal", "--json"))
	require.Equal(t, result{out: "{\"partition\":\"one\",\"items\":1}\n"}, jetpullFeed(t, db, "a\n", "add", "one", "--gate", "1"))
	r := jetpullFeed(t, db, "late\n", "add", "p")
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, "sealed")
	require.Empty(t, r.out)

	stop := startWatcher(t, db, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) == "c" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"error":{"message":"no c","no_retry":true}}`)
			return
		}
		_, _ = io.WriteString(w, `{"done":true}`)
	}, "--auto-close", "--concurrency", "2")
	status := func() string {
		r := jetpullFeed(t, db, "", "show", "p", "--json")
		require.Zero(t, r.code, r.err)
		var p struct{ Status string }
		require.NoError(t, json.Unmarshal([]byte(r.out), &p))
		return p.Status
	}
	require.Eventually(t, func() bool { return status() == "Failed" }, 30*time.Second, 20*time.Millisecond)

	r = jetpullFeed(t, db, "", "ls", "p", "--json")
	require.Zero(t, r.code, r.err)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Len(t, lines, 4)
	var failed map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[2]), &failed))
	require.Equal(t, "Failed", failed["status"])
	require.Equal(t, "c", failed["data"])
	require.Equal(t, []any{"answered with status 422: no c"}, failed["errors"])
	for _, name := range []string{"partition_id", "id", "gate", "status", "attempt", "errors", "data", "version"} {
		require.Contains(t, failed, name)
	}
	id := failed["id"].(string)
	require.Contains(t, jetpullFeed(t, db, "", "show", "p", id).out, "no c")
	require.Regexp(t, `"gate": 0,\s+"available": 0,\s+"complete": 2,\s+"failed": 1\s`, jetpullFeed(t, db, "", "show", "p").out)
	for _, refused := range [][]string{{"advance", "p", "2"}, {"close", "p"}, {"retry", "p", "x"}, {"show", "x"}, {"ls", "x"}} {
		r := jetpullFeed(t, db, "", refused...)
		require.Equal(t, cli.ExitError, r.code, refused)
		require.NotEmpty(t, r.err)
	}
	require.Zero(t, jetpullFeed(t, db, "", "skip", "p", id).code)
	require.Eventually(t, func() bool { return status() == "Complete" }, 30*time.Second, 20*time.Millisecond)
	require.Equal(t, cli.ExitDone, stop(), "a signal is how it ends")
	require.Zero(t, jetpullFeed(t, db, "", "reopen", "p").code)
	require.Zero(t, jetpullFeed(t, db, "", "advance", "p", "7").code)
	require.Zero(t, jetpullFeed(t, db, "", "close", "p").code)
	require.Contains(t, jetpullFeed(t, db, "", "ls").out, "Complete")
}

func TestFeedRefusesItsFlags(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "feed.db")
	require.Zero(t, jetpullFeed(t, db, "", "add", "p").code)
	for _, args := range [][]string{
		{},
		{"--handler", "x"},
		{"--handler", "http://127.0.0.1:1", "--concurrency", "0"},
		{"--handler", "http://127.0.0.1:1", "--secret", "x"},
		{"--handler", "http://127.0.0.1:1", "--exec", "true"},
		{"--exec", "true", "--health", "http://127.0.0.1:1"},
		{"--exec", "true", "--timeout", "0s"},
		{"--exec", "true", "--log-level", "loud"},
		{"--publish", "work"},
		{"ls", "--data"},
		{"advance", "p", "x"},
		{"add"},
		{"add", ""},
		{"add", "p", "--gate", "-5"},
		{"unknown"},
		{"watch", "--interval", "1ms"},
	} {
		r := jetpullFeed(t, db, "", args...)
		require.Equal(t, cli.ExitUsage, r.code, "%v: %s", args, r.err)
	}
	for _, missing := range []string{"./none --fast", "no-such-program", "  /etc/passwd x\n"} {
		r := jetpullFeed(t, db, "", "--exec", missing)
		require.Equal(t, cli.ExitUsage, r.code, r.err)
		require.Contains(t, r.err, "--exec: the command cannot be run: exec: "+strconv.Quote(strings.Fields(missing)[0]))
	}
	r := jetpullFeed(t, "postgres://u:hidden@127.0.0.1:1/d", "", "ls")
	require.Equal(t, cli.ExitError, r.code)
	require.NotContains(t, r.err, "hidden")
}

// Only add and a watcher create a database: commands that read one report a wrong name.
func TestFeedFindsNoDatabase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.db")
	for _, args := range [][]string{{"ls"}, {"show", "p"}, {"watch"}, {"retry", "p"}, {"close", "p"}} {
		for _, db := range []string{"sqlite:" + file, "sqlite://" + file + "?_pragma=cache_size(10)"} {
			r := jetpullFeed(t, db, "", args...)
			require.Equal(t, cli.ExitError, r.code, args)
			require.Contains(t, r.err, "no database at "+file+"; jetpull feed add makes it")
			require.NoFileExists(t, file)
		}
	}
}

// A watcher without its NATS server goes on, and says once what that costs.
func TestFeedWithoutNATS(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "feed.db")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var errOut buffer
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, []string{"feed", "--db", db, "--exec", "true", "--poll-max", "3s", "--nats", "nats://u:hidden@127.0.0.1:1"},
			strings.NewReader(""), io.Discard, &errOut)
	}()
	require.Eventually(t, func() bool { return strings.Contains(errOut.String(), "feed: watching") }, 30*time.Second, 10*time.Millisecond)
	cancel()
	require.Equal(t, cli.ExitDone, <-code, errOut.String())
	require.Equal(t, 1, strings.Count(errOut.String(), `"msg":"feed: no wake-ups until NATS answers; the database is asked every --poll-max","nats":"nats://…@127.0.0.1:1","--poll-max":"3s"}`), errOut.String())
	require.NotContains(t, errOut.String(), "hidden")
}

func TestFeedSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	db := "sqlite:" + filepath.Join(dir, "feed.db")
	require.Zero(t, jetpullFeed(t, db, "a\n", "add", "sealed", "--seal").code)
	require.Zero(t, jetpullFeed(t, db, "", "add", "passed").code)
	require.Zero(t, jetpullFeed(t, db, "", "advance", "passed", "3").code)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, tt := range []struct {
		want string
		code int
		db   string
		args []string
	}{
		{"partition is sealed or complete; jetpull feed reopen sealed opens it", cli.ExitError, db, []string{"add", "sealed"}},
		{"gate is passed; give --gate 3 or higher", cli.ExitError, db, []string{"add", "passed", "--gate", "2"}},
		{
			"folder " + filepath.Join(dir, "none") + " is not there, or may not be written", cli.ExitError, "sqlite:" + filepath.Join(dir, "none", "x.db"),
			[]string{"add", "p"},
		},
		{`--handler "foo" is not a URL such as http://`, cli.ExitUsage, db, []string{"--handler", "foo"}},
		{`--health "foo" is not a URL such as http://`, cli.ExitUsage, db, []string{"--handler", "http://127.0.0.1:1", "--health", "foo"}},
		{"in use; free the address, or choose another with --metrics", cli.ExitError, db, []string{"--exec", "true", "--metrics", taken.Addr().String()}},
		{"gate 2 is given twice; give one limit for a gate", cli.ExitUsage, db, []string{"--exec", "true", "--limit", "2=1", "--limit", "2=2"}},
	} {
		r := jetpullFeed(t, tt.db, "x\n", tt.args...)
		require.Equal(t, tt.code, r.code, "%q: %s", tt.args, r.err)
		require.Contains(t, r.err, tt.want)
		require.NotContains(t, r.err, "feed: watching")
	}
}

// Wrong values of flags are refused before anything is logged, served or created.
func TestFeedRefusesValuesFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.db")
	for want, values := range map[string][]string{
		"gate 2 is given twice":             {"--limit", "2=1", "--limit", "2=2"},
		"1ms is not in 1s..24h":             {"--limit", "2=1/1ms"},
		"--concurrency 0 is not in 1..":     {"--concurrency", "0"},
		"--lease 1ms is not in 100ms..24h":  {"--lease", "1ms"},
		"--poll-min 0s is not in 1ms..":     {"--poll-min", "0s"},
		"--poll-max 0s is not in 1ms..":     {"--poll-max", "0s"},
		"--poll-max 1ms is below":           {"--poll-max", "1ms"},
		"--max-partitions 0 is not in 1..":  {"--max-partitions", "0"},
		"--max-retries -2 is not in -1..":   {"--max-retries", "-2"},
		"--requeue -1s is not in 0s..":      {"--requeue", "-1s"},
		"--drain-timeout -1s is not in 0s.": {"--drain-timeout", "-1s"},
	} {
		args := append([]string{"--exec", "true", "--metrics", "127.0.0.1:0", "--nats", "nats://127.0.0.1:1"}, values...)
		r := jetpullFeed(t, "sqlite:"+file, "", args...)
		require.Equal(t, cli.ExitUsage, r.code, r.err)
		require.Contains(t, r.err, want)
		require.NotContains(t, r.err, `"level"`, "it has logged")
		require.NoFileExists(t, file)
	}
}

func TestFeedWatch(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "feed.db")
	require.Zero(t, jetpullFeed(t, db, "a\nb\n", "add", "p").code)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errOut buffer
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, []string{"feed", "watch", "--db", db, "--json", "--interval", "100ms"}, strings.NewReader(""), &out, &errOut)
	}()
	require.Eventually(t, func() bool { return strings.Count(out.String(), "\n") >= 2 }, 30*time.Second, 10*time.Millisecond)
	cancel()
	require.Equal(t, cli.ExitDone, <-code, errOut.String())
	line, _, _ := strings.Cut(out.String(), "\n")
	require.Contains(t, line, `"id":"p"`)
	require.Contains(t, line, `"available":2`)
}
