package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest/relayhistory"
	"github.com/jetpull/jetpull/test/servertest"
)

// The environment variables of a test binary that runs as a member of a cluster.
const (
	memberDir    = "RELAY_TEST_MEMBER_DIR"
	memberNumber = "RELAY_TEST_MEMBER"
	memberPorts  = "RELAY_TEST_MEMBER_PORTS" // of clients, of monitoring, then of the routes of all members
)

// member is a server of a cluster, until it is killed.
func member(dir string) error {
	return servertest.RunMember(dir, os.Getenv(memberNumber), os.Getenv(memberPorts))
}

// cluster is three servers, each in a process that can be killed.
type cluster struct {
	t       *testing.T
	members [3]struct {
		dir, health string
		env         []string
		cmd         *exec.Cmd
	}
	url string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t}
	addrs, err := servertest.FreeAddresses(3 * len(c.members))
	require.NoError(t, err)
	var routes, urls []string
	for _, a := range addrs[:len(c.members)] {
		routes = append(routes, strconv.Itoa(a.Port))
	}
	for i := range c.members {
		m := &c.members[i]
		clients, health := addrs[len(c.members)+2*i].Port, addrs[len(c.members)+2*i+1].Port
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", clients))
		m.dir, m.health = t.TempDir(), fmt.Sprintf("http://127.0.0.1:%d/healthz", health)
		m.env = append(os.Environ(), memberDir+"="+m.dir, memberNumber+"="+strconv.Itoa(i),
			fmt.Sprintf("%s=%d,%d,%s", memberPorts, clients, health, strings.Join(routes, ",")))
		t.Cleanup(func() { c.kill(i) })
		c.start(i)
	}
	c.url = strings.Join(urls, ",")
	c.awaitHealth()
	return c
}

func (c *cluster) start(i int) {
	c.t.Helper()
	self, err := os.Executable()
	require.NoError(c.t, err)
	m := &c.members[i]
	m.cmd = exec.Command(self, "-test.run=^$")
	m.cmd.Env, m.cmd.Stderr = m.env, os.Stderr
	// It ends with this process.
	_, err = m.cmd.StdinPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, m.cmd.Start())
}

func (c *cluster) kill(i int) {
	_ = c.members[i].cmd.Process.Kill()
	_ = c.members[i].cmd.Wait()
}

// awaitHealth waits until each member has all stored data.
func (c *cluster) awaitHealth() {
	c.t.Helper()
	for i := range c.members {
		eventually(c.t, func() bool {
			resp, err := http.Get(c.members[i].health)
			if err != nil {
				return false
			}
			return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
		}, "a server does not get well")
	}
}

// Servers of a cluster with three copies of all streams are killed, one at a time, while two processes work. Nothing is lost, and
// the history is valid.
func TestServersAreKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds: in nightly runs only")
	}
	t.Parallel()
	const kills = 20
	c := newCluster(t)
	h := newWitness(t, map[string]traits{
		"asked":   {Traits: relayhistory.Traits{Asked: true, MaxRetries: 3}},
		"pending": {Traits: relayhistory.Traits{Asked: true, MaxRetries: 3}, pending: true},
		"plain":   {Traits: relayhistory.Traits{Unknown: "at_least_once", MaxRetries: 3}},
		"ordered": {Traits: relayhistory.Traits{Asked: true, Order: "source", MaxRetries: 50}, failEvery: 4},
		"limited": {Traits: relayhistory.Traits{Asked: true, Limit: 20, Window: 500 * time.Millisecond, MaxRetries: 3}},
	})
	h.timeout = 5
	processes := make([]*mortal, 2)
	for i := range processes {
		processes[i] = &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0", nats: c.url, replicas: len(c.members)}
		t.Cleanup(processes[i].kill)
		processes[i].start()
	}
	h.configure(processes[0].site())
	for kill := range kills {
		ctx, cancel := context.WithCancel(t.Context())
		var senders sync.WaitGroup
		for name := range h.receivers {
			senders.Go(func() { h.persist(ctx, processes[kill%len(processes)], name, fmt.Sprintf("%s-%03d", name, kill)) })
		}
		victim, seen := rand.IntN(len(c.members)), h.accepts()
		t.Logf("kill %d: server %d", kill, victim)
		eventually(t, func() bool { return h.accepts() > seen+10 }, "nothing is accepted before a server is killed")
		c.kill(victim)
		seen = h.accepts()
		eventually(t, func() bool { return h.accepts() > seen+10 }, "nothing is accepted while a server is dead")
		c.start(victim)
		cancel()
		senders.Wait()
		c.awaitHealth()
	}
	h.check(processes[0].site(), kills*len(processes)*inWork)
}

// accepts returns how many messages were accepted so far.
func (h *witness) accepts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.accepted)
}
