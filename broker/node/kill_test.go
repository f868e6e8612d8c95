package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/client"
)

const (
	childDir    = "BROKER_TEST_CHILD"
	childListen = "BROKER_TEST_LISTEN"
	childNATS   = "BROKER_TEST_NATS"
	kills       = 20
)

// TestMain lets the test binary be a broker process that can be killed.
func TestMain(m *testing.M) {
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
	cfg := broker.DefaultConfig()
	cfg.HTTP.Listener = listen
	cfg.NATS.StoreDir = dir
	cfg.NATS.URL = os.Getenv(childNATS)
	cfg.Dispatch.Backoff = broker.Backoff{50 * time.Millisecond}
	cfg.Dispatch.RationalDelay = 0
	cfg.Dispatch.MaxRetry = 200
	cfg.Dispatch.Concurrency = killConcurrency
	cfg.Connection.Timeout = time.Second
	cfg.Seed = broker.SeedData{
		Channels:  []broker.SeedItem{{ID: "ch", Name: "ch", Token: "ct"}},
		Producers: []broker.SeedItem{{ID: "pr", Name: "pr", Token: "pt"}},
	}
	n, err := Start(context.Background(), cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	if err != nil {
		return err
	}
	fmt.Println(n.URL())
	return n.Wait(context.Background())
}

// killConcurrency is how many callbacks, and how many pulled jobs, are in work
// at a time, which bounds what a kill can make happen twice.
const killConcurrency = 4

// mortal is a broker process that is killed and started again.
type mortal struct {
	t      *testing.T
	dir    string
	listen string
	nats   string // URL of a server, or empty for an embedded one
	cmd    *exec.Cmd
}

func (m *mortal) start() {
	m.t.Helper()
	self, err := os.Executable()
	require.NoError(m.t, err)
	m.cmd = exec.Command(self, "-test.run=^$")
	m.cmd.Env = append(os.Environ(), childDir+"="+m.dir, childListen+"="+m.listen, childNATS+"="+m.nats)
	m.cmd.Stderr = os.Stderr
	out, err := m.cmd.StdoutPipe()
	require.NoError(m.t, err)
	require.NoError(m.t, m.cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(m.t, err, "the broker did not start")
	m.listen = strings.TrimPrefix(strings.TrimSpace(line), "http://")
}

func (m *mortal) kill() {
	if m.cmd != nil {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait()
	}
}

// tally counts how often each message was worked off.
type tally struct {
	mu    sync.Mutex
	times map[string]int
}

func (c *tally) add(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.times == nil {
		c.times = map[string]int{}
	}
	c.times[id]++
}

// missing counts those that were never, and repeats those that were again.
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

// A broker process is killed 20 times while producers broadcast, callbacks are
// made and a worker completes jobs. What was answered with 201 is delivered to
// both consumers, and what is done twice was in flight at a kill.
func TestKilledProcessLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts 20 processes")
	}
	m := &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0"}
	t.Cleanup(m.kill)
	m.start()
	var pushed, pulled tally
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { pushed.add(r.Header.Get("X-Broker-Message-ID")) }))
	defer receiver.Close()
	c := client.New("http://"+m.listen, nil)
	setup := &Node{listener: fixedAddr(m.listen)}
	putConsumer(t, setup, "push", receiver.URL, nil)
	putConsumer(t, setup, "pull", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var producers, background sync.WaitGroup
	var mu sync.Mutex
	var accepted []string
	producing := atomic.Bool{}
	producing.Store(true)
	for p := range 8 {
		producers.Go(func() {
			for i := 0; producing.Load(); i++ {
				id := fmt.Sprintf("%d-%d", p, i)
				_, err := c.Broadcast(ctx, client.Producer{Channel: "ch", ChannelToken: "ct", ID: "pr", Token: "pt"}, client.Message{ID: id, Payload: []byte(id)})
				if err == nil {
					mu.Lock()
					accepted = append(accepted, id)
					mu.Unlock()
				} else if !errors.Is(err, client.ErrUnavailable) {
					t.Errorf("broadcast %s: %v", id, err)
				}
			}
		})
	}
	background.Go(func() {
		err := c.Consumer("ch", "ct", "pull", "kt").Consume(ctx, func(_ context.Context, j *client.Job) error {
			pulled.add(j.MessageID)
			return nil
		}, client.Options{Concurrency: killConcurrency})
		if err != nil {
			t.Error(err)
		}
	})
	for range kills {
		time.Sleep(time.Duration(50+rand.IntN(150)) * time.Millisecond) // the moment of a kill is drawn, not waited for
		m.kill()
		m.start()
	}
	producing.Store(false)
	producers.Wait()
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		missedPush, _ := pushed.missing(accepted)
		missedPull, _ := pulled.missing(accepted)
		return missedPush == 0 && missedPull == 0
	}, 90*time.Second, 20*time.Millisecond)
	cancel()
	background.Wait()
	_, repeatedPush := pushed.missing(accepted)
	_, repeatedPull := pulled.missing(accepted)
	t.Logf("%d accepted; %d callbacks and %d pulled jobs repeated in %d kills", len(accepted), repeatedPush, repeatedPull, kills)
	require.LessOrEqual(t, repeatedPush, kills*killConcurrency)
	require.LessOrEqual(t, repeatedPull, kills*killConcurrency)
	require.NotEmpty(t, accepted)
}
