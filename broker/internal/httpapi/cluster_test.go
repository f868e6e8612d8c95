package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/gob"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// The contract holds on a cluster of three servers with three replicas as on the embedded server. Requests alternate between two
// broker processes.
func TestContractOnThreeServers(t *testing.T) {
	cluster := servertest.RunCluster(t)
	urls := make([]string, len(cluster.Servers))
	for i, srv := range cluster.Servers {
		urls[i] = srv.URL()
	}
	sites := 0
	onCluster = func(t testing.TB, cfg *broker.Config) []string {
		sites++
		cfg.NATS.URL, cfg.NATS.Replicas, cfg.NATS.StoreDir = strings.Join(urls, ","), 3, ""
		cfg.NATS.Name = fmt.Sprintf("site%d", sites)
		return []string{startProcess(t, cfg), startProcess(t, cfg)}
	}
	t.Cleanup(func() { onCluster = nil })
	type contract struct {
		name string
		run  func(*testing.T)
	}
	tests := []contract{
		{"Message", TestMessage},
		{"Transitions", TestTransitions},
		{"Claims", TestClaims},
		{"BatchOfTransitions", TestBatchOfTransitions},
		{"WorkersWithoutClaims", TestWorkersWithoutClaims},
		{"DeadLetters", TestDeadLetters},
		{"Scheduled", TestScheduled},
		{"DeleteChannel", TestDeleteChannel},
		{"ChangeOfEventTypes", TestChangeOfEventTypes},
	}
	if !testing.Short() {
		tests = append(tests, []contract{
			{"EventTypes", TestEventTypes},
			{"Replay", TestReplay},
			{"ReplayIsCancelled", TestReplayIsCancelled},
			{"ReplaysAtTheSameTime", TestReplaysAtTheSameTime},
			{"PutAndConditions", TestPutAndConditions},
			{"DeleteConsumer", TestDeleteConsumer},
			{"BroadcastChecksInOrder", TestBroadcastChecksInOrder},
			{"PullChecksInOrder", TestPullChecksInOrder},
			{"QueuedJobsLimits", TestQueuedJobsLimits},
			{"ScheduledIsBroadcast", TestScheduledIsBroadcast},
			{"Pages", TestPages},
			{"OddIDsRoundTrip", TestOddIDsRoundTrip},
			{"BadUTF8IsRefused", TestBadUTF8IsRefused},
			{"RoutesThatAreNot", TestRoutesThatAreNot},
			{"AdminToken", TestAdminToken},
			{"Gateway", TestGateway},
			{"LimitsOfARequest", TestLimitsOfARequest},
		}...)
	}
	for _, test := range tests {
		t.Run(test.name, test.run)
	}
}

// childConfig is the environment variable with the configuration of a broker process.
const childConfig = "BROKER_TEST_CONFIG"

// TestMain lets the test binary run as a broker process.
func TestMain(m *testing.M) {
	if text := os.Getenv(childConfig); text != "" {
		if err := child(text); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func child(text string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var cfg broker.Config
	err := gob.NewDecoder(base64.NewDecoder(base64.StdEncoding, strings.NewReader(text))).Decode(&cfg)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	n, err := broker.Start(ctx, &cfg, log)
	if err != nil {
		return err
	}
	fmt.Println(n.URL())
	if err := n.Wait(ctx); err != nil {
		return err
	}
	stopping, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return n.Stop(stopping)
}

// startProcess starts a broker process and returns its URL. The process is stopped with the test.
func startProcess(t testing.TB, cfg *broker.Config) string {
	t.Helper()
	var text bytes.Buffer
	encoder := base64.NewEncoder(base64.StdEncoding, &text)
	require.NoError(t, gob.NewEncoder(encoder).Encode(cfg))
	require.NoError(t, encoder.Close())
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), childConfig+"="+text.String())
	cmd.Stderr = os.Stderr
	natstest.EndWithParent(cmd, syscall.SIGKILL)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait(), "the broker process ended badly")
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "the broker process did not start")
	return strings.TrimSpace(line)
}

// laterRoutes are the requests whose answers come from a node's memory, which follows other nodes with a short delay. All other
// answers reflect everything that any node has answered before.
var laterRoutes = regexp.MustCompile(`^(GET /(producers|channels|job-status|dlq-status|metrics)` +
	`|GET /channel/[^/]+/(consumers|messages|messages-status|scheduled-messages)` +
	`|(GET|POST|DELETE) /channel/[^/]+/consumer/[^/]+/dlq` +
	`|(GET|POST) /channel/[^/]+/consumer/[^/]+/(queued-jobs|claim))$`)

func catchesUp(method, path string) bool {
	path, _, _ = strings.Cut(path, "?")
	return laterRoutes.MatchString(method + " " + path)
}

// channelOf returns the path of a request's channel.
func channelOf(path string) string {
	parts := strings.SplitN(path, "/", 4)
	if len(parts) < 3 || parts[1] != "channel" {
		return "/channel/ch"
	}
	return "/channel/" + parts[2]
}

// agree waits until the nodes of a site have the same state. Each node knows its own changes at once.
func (s *site) agree(channel string) {
	s.t.Helper()
	if len(s.urls) < 2 {
		return
	}
	view := func(url string) string {
		var all strings.Builder
		for _, path := range []string{
			"/producers", "/channels", channel + "/consumers", channel + "/messages", channel + "/scheduled-messages",
			"/job-status",
		} {
			req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url+path, nil)
			require.NoError(s.t, err)
			req.Header.Set("X-Broker-Admin-Token", "secret")
			resp, err := http.DefaultTransport.RoundTrip(req)
			require.NoError(s.t, err)
			_, err = io.Copy(&all, resp.Body)
			require.NoError(s.t, err)
			_ = resp.Body.Close()
		}
		return all.String()
	}
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		assert.Equal(c, view(s.urls[0]), view(s.urls[1]), "the nodes do not agree")
	}, 5*time.Minute, time.Millisecond)
}
