package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/internal/natstest/power"
)

// noteSizes returns a hook that appends each synced size to a file, one per line. The file outlives a kill of the process, unlike
// its memory.
func noteSizes(file string) (func(*os.File) error, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	disk := &power.Disk{Synced: func(path string, size int64) {
		if _, err := fmt.Fprintf(f, "%d %s\n", size, path); err != nil {
			panic(err)
		}
	}}
	return disk.Fsync, nil
}

// readSizes reads the file of noteSizes: each file with the size of its last sync.
func readSizes(t testing.TB, file string) map[string]int64 {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	sizes := map[string]int64{}
	for line := range strings.Lines(string(content)) {
		line, complete := strings.CutSuffix(line, "\n")
		if !complete {
			break // the process was killed during this line
		}
		size, path, ok := strings.Cut(line, " ")
		require.True(t, ok, line)
		sizes[path], err = strconv.ParseInt(size, 10, 64)
		require.NoError(t, err)
	}
	return sizes
}

// cutStore copies a store as the worst power failure would leave it: without the files that were never synced, and with the
// others truncated to their last sync.
func cutStore(t testing.TB, sizes map[string]int64, from, to string) (lost int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		size, synced := sizes[path]
		if !strings.Contains(path, "_attempts") { // some attempts are always lost
			lost += info.Size() - min(size, info.Size())
		}
		if !synced {
			return nil
		}
		rest, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return power.CopyPrefix(path, filepath.Join(to, rest), size)
	}))
	return lost
}

// fail kills the process, truncates its store to the last sync, and restarts it. It returns how many bytes were lost.
func (m *mortal) fail(sizes func() map[string]int64) (lost int64) {
	m.t.Helper()
	m.kill()
	after := m.t.TempDir()
	lost = cutStore(m.t, sizes(), m.dir, after)
	m.dir, m.sizes = after, filepath.Join(m.t.TempDir(), "sizes")
	m.start()
	return lost
}

// answers are the promises that a broker has made over HTTP.
type answers struct {
	accepted  ids // broadcasts that were answered with 201
	delivered ids // jobs whose transition was answered with 202
	producers ids // answered with 200

	checked struct{ accepted, delivered, producers int }
}

// write uses a broker in all ways until it cannot be reached, or ctx ends.
func (a *answers) write(ctx context.Context, t *testing.T, m *mortal, round int) {
	t.Helper()
	base := "http://" + m.listen
	c := client.New(base, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}})
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := func(err error) bool {
		if err != nil && !errors.Is(err, client.ErrUnavailable) && ctx.Err() == nil {
			t.Error(err)
		}
		return err != nil
	}
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", round, w, i)
				_, err := c.Broadcast(ctx, producer, client.Message{ID: id, Payload: make([]byte, 500)})
				if ended(err) {
					return
				}
				a.accepted.add(id)
			}
		})
		wg.Go(func() {
			k := c.Consumer("ch", "ct", "pull", "kt")
			for {
				// A slow disk must not cost a claim.
				jobs, err := k.Claim(ctx, 1, time.Minute, waitLong)
				if ended(err) {
					return
				}
				for _, j := range jobs {
					if ended(j.Delivered(ctx)) {
						return
					}
					a.delivered.add(j.MessageID)
				}
			}
		})
	}
	wg.Go(func() {
		for i := 0; ; i++ {
			id := fmt.Sprintf("%d-%d", round, i)
			req, err := http.NewRequestWithContext(ctx, http.MethodPut, base+"/producer/"+id, strings.NewReader("token=x"))
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("PUT producer %s: %d", id, resp.StatusCode)
				return
			}
			a.producers.add(id)
		}
	})
}

// check checks that the broker has everything that it has answered since the last check.
func (a *answers) check(t *testing.T, n *Node) {
	t.Helper()
	accepted, delivered, producers := a.accepted.list(), a.delivered.list(), a.producers.list()
	for _, id := range accepted[a.checked.accepted:] {
		code, body, _ := call(t, n, "GET", "/channel/ch/message/"+id, nil, "")
		require.Equal(t, 200, code, "message %s was answered with 201 and is gone: %s", id, body)
	}
	for _, id := range delivered[a.checked.delivered:] {
		require.Equal(t, "DELIVERED", jobStates(t, n, id)["pull"], "the delivery of message %s was answered with 202 and is gone", id)
	}
	for _, id := range producers[a.checked.producers:] {
		code, body, _ := call(t, n, "GET", "/producer/"+id, nil, "")
		require.Equal(t, 200, code, "producer %s was answered with 200 and is gone: %s", id, body)
	}
	a.checked.accepted, a.checked.delivered, a.checked.producers = len(accepted), len(delivered), len(producers)
}

// checkAll checks everything again, because a later failure may take what survived an earlier one.
func (a *answers) checkAll(t *testing.T, n *Node) {
	t.Helper()
	a.checked.accepted, a.checked.delivered, a.checked.producers = 0, 0, 0
	a.check(t, n)
}

// The power fails during writes to a broker: its process is killed, and its store loses all unsynced data. All answered data
// survive each failure and are delivered. A failure right after a sync loses nothing, and is repeated. Histories of jobs lose
// what was added since the process began, whose start syncs the rest.
func TestPowerFailureOfAProcess(t *testing.T) {
	failures := 3
	if testing.Short() {
		failures = 2
	}
	var pushed moody
	receiver := httptest.NewServer(&pushed)
	defer receiver.Close()
	m := &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0", sizes: filepath.Join(t.TempDir(), "sizes")}
	t.Cleanup(m.kill)
	m.start()
	putConsumer(t, m.node(), "pull", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	putConsumer(t, m.node(), "push", receiver.URL, nil)
	var a answers
	shown := histories{}
	round, lives := 0, 0
	work := func(target int, end func()) {
		lives++
		ctx, cancel := context.WithCancel(t.Context())
		var writing sync.WaitGroup
		writing.Go(func() { a.write(ctx, t, m, lives) })
		waitUntil(t, func() bool { return a.accepted.count() > target && a.delivered.count() > target/3 }, "the writers do not go on")
		end()
		cancel()
		writing.Wait()
	}
	history := func(before time.Time) (failures, missing int) {
		return shown.check(t, m.node(), "push", failing(a.accepted.list()), before)
	}
	for taken := 0; taken < failures; round++ {
		require.Less(t, round, 10*failures, "failures that take nothing show nothing")
		target := a.accepted.count() + fewer(300)
		var killed time.Time
		work(target-fewer(150), func() { killed = time.Now(); m.kill(); m.start() })
		before, missing := history(killed)
		if round == 0 {
			require.Zero(t, missing, "a kill takes no attempt")
		}
		var lost int64
		work(target, func() { lost = m.fail(func() map[string]int64 { return readSizes(t, m.sizes) }) })
		a.check(t, m.node())
		failures, missing := history(killed)
		t.Logf("failure %d: %d messages, %d deliveries and %d producers survived, %d bytes were lost; %d attempts were shown before it, %d failed ones "+
			"after it, %d are missing",
			round+1, a.accepted.count(), a.delivered.count(), a.producers.count(), lost, before, failures, missing)
		if lost > 0 {
			taken++
		}
	}
	all := a.accepted.list()
	waitUntil(t, func() bool { missing, _ := pushed.calls.missing(all); return missing == 0 }, "messages that survived are not delivered")
	a.checkAll(t, m.node())
	require.NotEmpty(t, shown)
	_, repeats := pushed.calls.missing(all)
	require.LessOrEqual(t, repeats-len(failing(all)), lives*killConcurrency)
}

// Counter-check of the test above: without the syncs since its start, a broker loses data that it has answered.
func TestPowerFailureIsNoticed(t *testing.T) {
	m := &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0", sizes: filepath.Join(t.TempDir(), "sizes")}
	t.Cleanup(m.kill)
	m.start()
	atStart := readSizes(t, m.sizes)
	broadcast(t, m.node(), "m", "x", nil)
	code, _, _ := call(t, m.node(), "GET", "/channel/ch/message/m", nil, "")
	require.Equal(t, 200, code)
	m.fail(func() map[string]int64 { return atStart })
	code, _, _ = call(t, m.node(), "GET", "/channel/ch/message/m", nil, "")
	require.Equal(t, 404, code)
}
