package limit

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/limit"
	"github.com/jetpull/jetpull/test/servertest"
)

// handling is a handler that ran. The end of one whose process was killed is the kill, and that of one whose process was stopped the stop, since its
// context has ended when the process goes on.
type handling struct {
	key        int
	begin, end int64
}

// judge returns the windows of a key with more begins than Rate, and the moments with more handlers than Concurrent.
func judge(history []handling, c limit.Config) (faults []string) {
	keys := map[int][]handling{}
	for _, h := range history {
		keys[h.key] = append(keys[h.key], h)
	}
	for key, hs := range keys {
		slices.SortFunc(hs, func(a, b handling) int { return cmp.Compare(a.begin, b.begin) })
		var running []handling
		for i, h := range hs {
			if c.Rate > 0 && i >= c.Rate && time.Duration(h.begin-hs[i-c.Rate].begin) < c.Window {
				faults = append(faults, fmt.Sprintf("key %d: %d begin within %v", key, c.Rate+1, time.Duration(h.begin-hs[i-c.Rate].begin)))
			}
			running = append(slices.DeleteFunc(running, func(other handling) bool { return other.end <= h.begin }), h)
			if c.Concurrent > 0 && len(running) > c.Concurrent {
				faults = append(faults, fmt.Sprintf("key %d: %d run", key, len(running)))
			}
		}
	}
	return faults
}

// TestJudgeFindsPlantedErrors: the judge finds a window that begins anywhere, and handlers that overlap.
func TestJudgeFindsPlantedErrors(t *testing.T) {
	c := limit.Config{Rate: 2, Window: 100, Concurrent: 2}
	good := []handling{{0, 0, 1}, {0, 99, 100}, {0, 100, 300}, {1, 50, 60}, {0, 199, 200}}
	require.Empty(t, judge(good, c))
	require.Len(t, judge(append(good, handling{0, 198, 199}), c), 2, "198 with 99 and 100, and with 100 and 199")
	c.Rate = 0
	require.Empty(t, judge(append(good, handling{0, 201, 202}), c))
	require.Len(t, judge(append(good, handling{0, 150, 250}), c), 1)
}

type fleet struct {
	t      *testing.T
	s      settings
	begins atomic.Int64
	mu     sync.Mutex
	past   []handling
	procs  []*proc
}

type proc struct {
	cmd  *exec.Cmd
	read chan struct{} // closed when its output has ended
	open map[int]handling
}

func launch(t *testing.T, c limit.Config, n int) *fleet {
	t.Helper()
	srv := servertest.RunServer(t)
	js := natstest.JetStream(t, natstest.Connect(t, srv.URL()))
	_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "limits"})
	require.NoError(t, err)
	f := &fleet{t: t, s: settings{URL: srv.URL(), Config: c, Keys: 2, Workers: 4, Work: 80 * time.Millisecond}}
	t.Cleanup(func() {
		for _, p := range f.procs {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	for range n {
		f.start()
	}
	return f
}

func (f *fleet) start() {
	text, err := json.Marshal(f.s)
	require.NoError(f.t, err)
	p := &proc{cmd: exec.CommandContext(context.WithoutCancel(f.t.Context()), os.Args[0]), read: make(chan struct{}), open: map[int]handling{}}
	p.cmd.Env = append(os.Environ(), "LIMIT_PROCESS="+string(text), "GOMAXPROCS=1")
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, p.cmd.Start())
	f.procs = append(f.procs, p)
	go func() {
		defer close(p.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) != nil {
				continue // a line that a kill cut off
			}
			f.mu.Lock()
			if e.Begin > 0 {
				p.open[e.ID] = handling{key: e.Key, begin: e.Begin}
				f.begins.Add(1)
			} else {
				h := p.open[e.ID]
				if h.end == 0 {
					h.end = e.End
				}
				f.past = append(f.past, h)
				delete(p.open, e.ID)
			}
			f.mu.Unlock()
		}
	}()
}

// kill is kill -9 of the process that was started first.
func (f *fleet) kill() {
	p := f.procs[0]
	f.procs = f.procs[1:]
	at := time.Now().UnixNano()
	require.NoError(f.t, p.cmd.Process.Kill())
	<-p.read
	_ = p.cmd.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range p.open {
		h.end = max(at, h.begin) // a signal takes a moment
		f.past = append(f.past, h)
	}
}

// freeze stops a process until others have begun handlers for longer than the TTL.
func (f *fleet) freeze() {
	p := f.procs[0]
	f.procs = append(f.procs[1:], p)
	require.NoError(f.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	at := time.Now()
	f.more(10)
	for time.Since(at) < 2*f.s.Config.TTL {
		f.more(1)
	}
	f.mu.Lock()
	for id, h := range p.open {
		h.end = max(at.UnixNano(), h.begin)
		p.open[id] = h
	}
	f.mu.Unlock()
	require.NoError(f.t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// more waits until so many more handlers have begun.
func (f *fleet) more(n int) {
	f.t.Helper()
	want := f.begins.Load() + int64(n)
	require.Eventually(f.t, func() bool { return f.begins.Load() >= want }, time.Minute, 5*time.Millisecond, "more handlers begin")
}

// finish ends all processes and judges.
func (f *fleet) finish() {
	for len(f.procs) > 0 {
		f.kill()
	}
	faults := judge(f.past, f.s.Config)
	f.t.Logf("%d handlers, %d faults", len(f.past), len(faults))
	require.Empty(f.t, faults[:min(len(faults), 10)])
}

// TestTakeOvers: processes are killed and others take over, 50 times, while all have more to handle than the limit allows.
func TestTakeOvers(t *testing.T) {
	f := launch(t, limit.Config{Rate: 60, Window: time.Second, Concurrent: 5, TTL: time.Second}, 4)
	for range 50 {
		f.more(25)
		f.kill()
		f.start()
	}
	f.finish()
}

// TestProcessesAreStopped: processes are stopped for longer than the TTL, and go on.
func TestProcessesAreStopped(t *testing.T) {
	f := launch(t, limit.Config{Rate: 40, Window: time.Second, Concurrent: 4, TTL: time.Second}, 3)
	for range 6 {
		f.more(20)
		f.freeze()
	}
	f.finish()
}
