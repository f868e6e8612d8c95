package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/relay/internal/work"
)

const (
	childDir   = "RELAY_TEST_CHILD"
	childAddr  = "RELAY_TEST_LISTEN"
	childNATS  = "RELAY_TEST_NATS"
	childPoint = "RELAY_TEST_CRASHPOINT"
)

// TestMain lets the test binary be a relay process that can be killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func child(dir string) error {
	cfg := testConfig(dir)
	cfg.HTTP.Listener, cfg.NATS.URL = os.Getenv(childAddr), os.Getenv(childNATS)
	if point := os.Getenv(childPoint); point != "" {
		var passed atomic.Int64
		after := rand.Int64N(20)
		work.OnCrashpoint(func(at string) {
			if at == point && passed.Add(1) > after {
				// As kill -9: nothing is flushed, nobody is told.
				self, err := os.FindProcess(os.Getpid())
				if err == nil {
					_ = self.Kill()
				}
				select {}
			}
		})
	}
	n, err := Start(context.Background(), cfg, testLog())
	if err != nil {
		return err
	}
	fmt.Println(n.Addr())
	return n.Wait(context.Background())
}

// mortal is a relay process that is killed and started again.
type mortal struct {
	t           *testing.T
	dir, listen string
	nats, point string
	cmd         *exec.Cmd
	mu          sync.Mutex
	exited      chan struct{}
}

func (m *mortal) start() {
	m.t.Helper()
	self, err := os.Executable()
	require.NoError(m.t, err)
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+m.dir, childAddr+"="+m.listen, childNATS+"="+m.nats, childPoint+"="+m.point)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(m.t, err)
	require.NoError(m.t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(m.t, err, "the relay did not start")
	m.listen = strings.TrimSpace(line)
	exited := make(chan struct{})
	m.mu.Lock()
	m.cmd, m.exited = cmd, exited
	m.mu.Unlock()
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
}

func (m *mortal) kill() {
	m.mu.Lock()
	cmd, exited := m.cmd, m.exited
	m.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		<-exited
	}
}

func (m *mortal) site() *site { return &site{t: m.t, url: "http://" + m.listen} }

// ledger is a receiver that remembers what it has got, and counts repeats.
type ledger struct {
	mu     sync.Mutex
	posts  map[string]int
	async  bool
	polled map[string]int
}

func (l *ledger) answer(_ int, got seen) (int, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if got.Method == http.MethodPost {
		id := got.Header.Get("Webhook-Id")
		l.posts[id]++
		if l.async {
			return 202, ""
		}
		return 200, `"` + id + `"`
	}
	id := strings.TrimPrefix(got.Path, "/status/")
	if l.posts[id] == 0 {
		return 404, ""
	}
	if l.polled[id]++; l.async && l.polled[id] < 2 {
		return 202, ""
	}
	return 200, `"` + id + `"`
}

// persist hands in a message until it is answered, as a sender does.
func (m *mortal) persist(ctx context.Context, body object) bool {
	data, err := json.Marshal(body)
	require.NoError(m.t, err)
	for ctx.Err() == nil {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+m.listen+"/v1/messages", strings.NewReader(string(data)))
		req.Header.Set("Authorization", "Bearer git-token")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusOK {
				return true
			}
		}
		select {
		case <-time.After(waitStep):
		case <-ctx.Done():
		}
	}
	return false
}

// A process is killed at each named point, between every write and every request. Whatever it was doing: every message
// that was accepted ends once, the receiver has each once, and the sender is told of each.
func TestKilledAtEveryPoint(t *testing.T) {
	points := []string{"before-sending", "after-sending", "after-post", "after-result", "before-poll", "before-polled", "after-callback"}
	kills := len(points) * 3
	if testing.Short() {
		kills = len(points)
	}
	sync1, async1 := &ledger{posts: map[string]int{}, polled: map[string]int{}}, &ledger{posts: map[string]int{}, polled: map[string]int{}, async: true}
	answers, later := newPeer(t, sync1.answer), newPeer(t, async1.answer)
	callback := newPeer(t, nil)
	m := &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0"}
	t.Cleanup(m.kill)
	m.start()
	s := m.site()
	s.sender("git", callback.URL, "")
	for name, p := range map[string]*peer{"sync": answers, "async": later} {
		s.receiver(name, p.URL, object{"status_endpoint": p.URL + "/status/{source_id}/{message_id}", "timeout": 0.5})
	}
	var accepted []string
	for kill := range kills {
		m.kill()
		m.point = points[kill%len(points)]
		m.start()
		ctx, cancel := context.WithCancel(t.Context())
		var senders sync.WaitGroup
		var mu sync.Mutex
		for p := range 4 {
			senders.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					id := fmt.Sprintf("%d-%d-%d", kill, p, i)
					if m.persist(ctx, message(fmt.Sprint("s", p), id, []string{"sync", "async"}[i%2])) {
						mu.Lock()
						accepted = append(accepted, fmt.Sprintf("s%d/%s", p, id))
						mu.Unlock()
					}
				}
			})
		}
		select {
		case <-m.exited:
		case <-time.After(waitLong):
			t.Errorf("the process did not pass %s", m.point)
		}
		cancel()
		senders.Wait()
	}
	m.kill()
	m.point = ""
	m.start()
	s = m.site()
	for _, id := range accepted {
		source, message, _ := strings.Cut(id, "/")
		s.awaitStatus(source, message, "DONE")
	}
	told := map[string]int{}
	for _, got := range callback.list() {
		told[got.Header.Get("Webhook-Id")]++
	}
	repeated := 0
	for _, id := range accepted {
		sync1.mu.Lock()
		async1.mu.Lock()
		n := sync1.posts[id] + async1.posts[id]
		async1.mu.Unlock()
		sync1.mu.Unlock()
		require.Equal(t, 1, n, "POSTs of %s", id)
		require.Positive(t, told[id], "callbacks of %s", id)
		repeated += told[id] - 1
	}
	t.Logf("%d kills, %d messages accepted, each POSTed once; %d callbacks repeated", kills, len(accepted), repeated)
	require.LessOrEqual(t, repeated, kills*64)
}
