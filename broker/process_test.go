package broker

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/natstest"
)

const (
	childDir    = "BROKER_TEST_CHILD"
	childListen = "BROKER_TEST_LISTEN"
	childNATS   = "BROKER_TEST_NATS"
	childSizes  = "BROKER_TEST_SIZES"
	childCopies = "BROKER_TEST_REPLICAS"
	childRetry  = "BROKER_TEST_RETRY"
	childClaims = "BROKER_TEST_CLAIMS"
)

// killConcurrency is how many callbacks and pulled jobs are in progress at a time. It bounds the repetitions that a kill can
// cause.
const killConcurrency = 4

// killTimeout is the timeout of callbacks in a process that is killed; claims last a little longer. It outlasts a restart, so
// that a worker can still report its work.
const killTimeout = 4 * time.Second

// TestMain lets the test binary run as a broker process that can be killed, or as a server of a cluster.
func TestMain(m *testing.M) {
	if dir := os.Getenv(memberDir); dir != "" {
		if err := member(dir); err != nil {
			fmt.Fprintln(os.Stderr, "member:", err)
			os.Exit(1)
		}
		return
	}
	if dir := os.Getenv(childDir); dir != "" {
		if err := child(dir, os.Getenv(childListen)); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func child(dir, listen string) error {
	cfg := DefaultConfig()
	cfg.HTTP.Listener = listen
	cfg.NATS.StoreDir = dir
	cfg.NATS.URL = os.Getenv(childNATS)
	retry, err := time.ParseDuration(cmp.Or(os.Getenv(childRetry), "50ms"))
	if err != nil {
		return err
	}
	if copies := os.Getenv(childCopies); copies != "" {
		if cfg.NATS.Replicas, err = strconv.Atoi(copies); err != nil {
			return err
		}
	}
	cfg.Dispatch.Backoff = domain.Backoff{retry}
	cfg.Dispatch.RationalDelay = 0
	cfg.Dispatch.MaxRetry = 200
	cfg.Dispatch.Concurrency = killConcurrency
	if cfg.Connection.Timeout, err = time.ParseDuration(cmp.Or(os.Getenv(childClaims), killTimeout.String())); err != nil {
		return err
	}
	cfg.Seed = SeedData{
		Channels:  []SeedItem{{ID: "ch", Name: "ch", Token: "ct"}},
		Producers: []SeedItem{{ID: "pr", Name: "pr", Token: "pt"}},
	}
	note, err := noteSizes(os.Getenv(childSizes))
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	n, err := Start(context.Background(), cfg, log, func(n *Node) { n.fsync = note })
	if err != nil {
		return err
	}
	fmt.Println(n.URL())
	return n.Wait(context.Background())
}

// mortal is a broker process that is killed and restarted.
type mortal struct {
	t      *testing.T
	dir    string
	listen string
	nats   string // URL of a server, or empty for an embedded one
	sizes  string // file for the sizes that were synced, or empty
	copies string // replicas, or empty for one
	retry  string // delay of a retry, or empty for a short one
	claims string // timeout of callbacks, and so the time of a claim, or empty for killTimeout
	binary string // the test binary to run, or empty for this one
	clock  string // file with the seconds by which its clock is ahead, if the binary reads one
	cmd    *exec.Cmd

	mu sync.Mutex
	up chan struct{} // closed while it runs
}

// startMortal starts a process with an embedded server and a store.
func startMortal(t *testing.T) *mortal {
	t.Helper()
	m := &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0"}
	t.Cleanup(m.kill)
	m.start()
	return m
}

func (m *mortal) start() {
	m.t.Helper()
	self, err := os.Executable()
	require.NoError(m.t, err)
	m.cmd = exec.Command(cmp.Or(m.binary, self), "-test.run=^$")
	m.cmd.Env = append(os.Environ(), childDir+"="+m.dir, childListen+"="+m.listen, childNATS+"="+m.nats, childSizes+"="+m.sizes,
		childCopies+"="+m.copies, childRetry+"="+m.retry, childClock+"="+m.clock)
	m.cmd.Stderr = os.Stderr
	natstest.EndWithParent(m.cmd, syscall.SIGKILL)
	out, err := m.cmd.StdoutPipe()
	require.NoError(m.t, err)
	require.NoError(m.t, m.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(m.t, err, "the broker did not start")
	if listen := strings.TrimPrefix(strings.TrimSpace(line), "http://"); listen != m.listen { // only at the first start: clients read it afterwards
		m.listen = listen
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.up == nil {
		m.up = make(chan struct{})
	}
	close(m.up)
}

// kill ends the process as kill -9 does.
func (m *mortal) kill() {
	if m.cmd == nil {
		return
	}
	m.mu.Lock()
	m.up = make(chan struct{})
	m.mu.Unlock()
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
	m.cmd = nil
}

// running waits until the process is running, or ctx ends.
func (m *mortal) running(ctx context.Context) {
	m.mu.Lock()
	up := m.up
	m.mu.Unlock()
	select {
	case <-up:
	case <-ctx.Done():
	}
}

// persist repeats a request while the broker cannot be reached.
func (m *mortal) persist(ctx context.Context, request func() error) error {
	for {
		err := request()
		if !errors.Is(err, client.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		m.running(ctx)
	}
}

// node returns a Node for the helpers that make requests to the process.
func (m *mortal) node() *Node { return &Node{addr: m.listen} }

// tally counts how often each message was worked off.
type tally struct {
	mu    sync.Mutex
	times map[string]int
}

// add counts a message and returns its count.
func (c *tally) add(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.times == nil {
		c.times = map[string]int{}
	}
	c.times[id]++
	return c.times[id]
}

// missing returns how many messages were never counted, and how many repetitions there were.
func (c *tally) missing(ids []string) (missing, repeats int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if c.times[id] == 0 {
			missing++
		}
		repeats += max(0, c.times[id]-1)
	}
	return missing, repeats
}

// ids are the IDs of accepted messages.
type ids struct {
	mu  sync.Mutex
	all []string
}

func (i *ids) add(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = append(i.all, id)
}

func (i *ids) list() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]string(nil), i.all...)
}

func (i *ids) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.all)
}
