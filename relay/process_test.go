package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/relayhistory"
	"github.com/jetpull/jetpull/relay/internal/work"
)

const (
	childDir    = "RELAY_TEST_CHILD"
	childAddr   = "RELAY_TEST_LISTEN"
	childNATS   = "RELAY_TEST_NATS"
	childPoint  = "RELAY_TEST_CRASHPOINT"
	childClock  = "RELAY_TEST_CLOCK"
	childCopies = "RELAY_TEST_REPLICAS"
	childGiveUp = "RELAY_TEST_CALLBACK_DEADLINE"
)

// atATime is how many parallel tests run together. They wait more than they compute.
const atATime = 4

// TestMain lets the test binary run as a relay process, or as a server, that can be killed.
func TestMain(m *testing.M) {
	for variable, run := range map[string]func(dir string) error{childDir: child, memberDir: member} {
		if dir := os.Getenv(variable); dir != "" {
			if err := run(dir); err != nil {
				fmt.Fprintln(os.Stderr, variable+":", err)
				os.Exit(1)
			}
			return
		}
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(atATime))
	}
	os.Exit(m.Run())
}

func child(dir string) error {
	cfg := testConfig(dir)
	cfg.HTTP.Listener, cfg.NATS.URL = os.Getenv(childAddr), os.Getenv(childNATS)
	if copies, err := strconv.Atoi(os.Getenv(childCopies)); err == nil && copies > 0 {
		cfg.NATS.Replicas = copies
	}
	if deadline, err := time.ParseDuration(os.Getenv(childGiveUp)); err == nil && deadline > 0 {
		cfg.Relay.CallbackDeadline = deadline
	}
	if point := os.Getenv(childPoint); point != "" {
		var passed atomic.Int64
		after := rand.Int64N(20)
		work.OnCrashpoint(func(_, at string) {
			if at == point && passed.Add(1) > after {
				// As kill -9: nothing is flushed, and no client is notified.
				self, err := os.FindProcess(os.Getpid())
				if err == nil {
					_ = self.Kill()
				}
				select {}
			}
		})
	}
	if ahead, err := time.ParseDuration(os.Getenv(childClock)); err == nil {
		work.SetClock(func() time.Time { return time.Now().Add(ahead) })
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
	replicas    int
	clock       time.Duration // ahead of the right time
	giveUp      time.Duration // the time after which a callback is given up; 0: the default
	cmd         *exec.Cmd
	mu          sync.Mutex
	exited      chan struct{}
}

func (m *mortal) start() {
	m.t.Helper()
	self, err := os.Executable()
	require.NoError(m.t, err)
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+m.dir, childAddr+"="+m.listen, childNATS+"="+m.nats, childPoint+"="+m.point,
		childClock+"="+m.clock.String(),
		childCopies+"="+strconv.Itoa(m.replicas), childGiveUp+"="+m.giveUp.String())
	cmd.Stderr = os.Stderr
	natstest.EndWithParent(cmd, syscall.SIGKILL)
	out, err := cmd.StdoutPipe()
	require.NoError(m.t, err)
	require.NoError(m.t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil && m.point != "" && cmd.Wait() != nil && cmd.ProcessState.ExitCode() < 0 { // it was killed at its point before it listened
		m.start()
		return
	}
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

func (m *mortal) dead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.exited:
		return true
	default:
		return false
	}
}

func (m *mortal) site() *site { return &site{m.t, "http://" + m.listen} }

// persist submits a message until it is answered, as a sender does.
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

// points are the named points in the code at which a process is killed: before and after each write and each request.
var points = []string{
	"before-create", "after-create", "after-route", "before-sending", "after-sending", "after-post", "before-follow", "after-result",
	"before-poll", "before-polled", "before-callback", "after-callback", "after-callback-stored",
}

// victims are receivers of the runs in which processes are killed.
var victims = map[string]traits{
	"asked":   {Traits: relayhistory.Traits{Asked: true, MaxRetries: 3}},
	"pending": {Traits: relayhistory.Traits{Asked: true, MaxRetries: 3}, pending: true},
	"plain":   {Traits: relayhistory.Traits{Unknown: "at_least_once", MaxRetries: 3}},
	"once":    {Traits: relayhistory.Traits{Unknown: "at_most_once", MaxRetries: 3}},
	"failing": {Traits: relayhistory.Traits{Asked: true, MaxRetries: 1}, failEvery: 3},
	"ordered": {Traits: relayhistory.Traits{Asked: true, Order: "source", MaxRetries: 50}, failEvery: 4},
	"limited": {Traits: relayhistory.Traits{Asked: true, Limit: 20, Window: 200 * time.Millisecond, MaxRetries: 3}},
}

// A process is killed at the named points. The history must be valid whatever the process was doing.
func TestKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	kills := 100
	if testing.Short() {
		kills = 4
	}
	h := newWitness(t, victims)
	m := &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0"}
	t.Cleanup(m.kill)
	m.start()
	h.configure(m.site())
	// Each point is used equally often, in random order.
	var order []int
	for kill := range kills {
		if len(order) == 0 {
			order = rand.Perm(len(points))
		}
		m.kill()
		m.point, order = points[order[0]], order[1:]
		m.start()
		t.Logf("kill %d: %s", kill, m.point)
		ctx, cancel := context.WithCancel(t.Context())
		var senders sync.WaitGroup
		for name := range h.receivers {
			senders.Go(func() { h.persist(ctx, m, name, fmt.Sprintf("%s-%03d", name, kill)) })
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
	h.check(m.site(), kills*inWork)
}

// inWork bounds the messages in progress in a process when it is killed.
const inWork = 64

// persist submits messages of a source, one after the other, until ctx ends.
func (h *witness) persist(ctx context.Context, m *mortal, receiver, source string) {
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("%05d", i)
		h.offer(source, id, receiver)
		if m.persist(ctx, message(source, id, receiver)) {
			h.accept(source, id)
		}
	}
}

// A process is killed in the middle of a redrive, and the next process continues the operation. The rate of the operation is low
// enough that each kill leaves messages. Half of the messages were refused, and the callbacks of the others have failed.
func TestKilledWhileRedriving(t *testing.T) {
	t.Parallel()
	var working atomic.Bool
	r := newPeer(t, func(_ int, got seen) (int, string) {
		if working.Load() || strings.HasPrefix(got.Header.Get("Webhook-Id"), "told/") {
			return 200, "1"
		}
		if got.Method == http.MethodGet {
			return 404, "" // so that a POST that timed out is repeated: with any other answer it would be polled until the deadline
		}
		return 400, ""
	})
	callback := newPeer(t, func(int, seen) (int, string) {
		if working.Load() {
			return 200, ""
		}
		return 502, ""
	})
	m := &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0", giveUp: time.Millisecond}
	t.Cleanup(m.kill)
	m.start()
	s := m.site()
	const n = 100
	sources := []string{"a", "told"}
	s.receiver("ci", r.URL, object{"status_endpoint": r.URL + "/status/{source_id}/{message_id}", "timeout": 0.5})
	s.sender("git", callback.URL, "told")
	for _, source := range sources {
		s.batch(source, "ci", n/2)
	}
	eventually(t, func() bool { return len(s.failed("")) == n }, "not all are on the list")
	working.Store(true)
	op := object{}
	for _, m.point = range []string{"before-redriven", "after-redriven", "after-enqueued", ""} {
		m.kill()
		m.start()
		s = m.site()
		if op["id"] == nil {
			op = s.want(202, "POST", "/v1/failed:redrive", adminToken, object{"filter": object{}, "rate": n})
		}
		if m.point == "" {
			break
		}
		select {
		case <-m.exited:
		case <-time.After(waitLong):
			t.Fatalf("the process did not pass %s", m.point)
		}
	}
	require.Equal(t, "done", s.ended(op)["state"])
	for _, source := range sources {
		for i := range n / 2 {
			require.EqualValues(t, 1, s.awaitStatus(source, fmt.Sprint(i), "DONE")["redrives"])
		}
	}
	require.Empty(t, s.failed(""))
}
