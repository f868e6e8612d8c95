package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/test/servertest"
)

// Environment variables of a test binary that runs as a server of a cluster: the ports for clients and for its health, and the
// routes of all members.
const (
	memberDir    = "BROKER_TEST_MEMBER_DIR"
	memberNumber = "BROKER_TEST_MEMBER"
	memberPorts  = "BROKER_TEST_MEMBER_PORTS"
)

const memberCount = 3

// member runs a server of a cluster. It ends with the process that started it.
func member(dir string) error {
	return servertest.RunMember(dir, os.Getenv(memberNumber), os.Getenv(memberPorts))
}

// startMembers starts three servers, each in its own process, waits until they form a cluster, and returns their URLs.
func startMembers(t *testing.T) (urls string) {
	t.Helper()
	addrs, err := servertest.FreeAddresses(3 * memberCount)
	require.NoError(t, err)
	var routes, clients, health []string
	for _, a := range addrs[:memberCount] {
		routes = append(routes, strconv.Itoa(a.Port))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for i := range memberCount {
		forClients, forHealth := addrs[memberCount+2*i].Port, addrs[memberCount+2*i+1].Port
		clients = append(clients, fmt.Sprintf("nats://127.0.0.1:%d", forClients))
		health = append(health, fmt.Sprintf("http://127.0.0.1:%d/healthz", forHealth))
		cmd := exec.Command(self, "-test.run=^$")
		cmd.Env = append(os.Environ(), memberDir+"="+t.TempDir(), memberNumber+"="+strconv.Itoa(i),
			fmt.Sprintf("%s=%d,%d,%s", memberPorts, forClients, forHealth, strings.Join(routes, ",")))
		cmd.Stderr = os.Stderr
		_, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	}
	for _, address := range health {
		waitUntil(t, func() bool {
			resp, err := http.Get(address)
			return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
		}, "a server does not get well")
	}
	return strings.Join(clients, ",")
}

// pair is two broker processes on a cluster, with the messages that were broadcast, pushed and claimed.
type pair struct {
	t               *testing.T
	brokers         []*mortal
	clients         []*client.Client
	accepted        ids
	pushed, settled tally
}

// broadcast sends n messages, about 250 a second, to both brokers.
func (p *pair) broadcast(ctx context.Context, round, n int) {
	limit := rate.NewLimiter(250, 10)
	var next atomic.Int64
	var producers sync.WaitGroup
	for w := range 16 {
		producers.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(n) || limit.Wait(ctx) != nil {
					return
				}
				m, id := p.brokers[w%len(p.brokers)], fmt.Sprintf("%d-%d", round, i)
				err := m.persist(ctx, func() error {
					_, err := p.clients[w%len(p.brokers)].Broadcast(ctx, producer, client.Message{ID: id, Payload: []byte(id)})
					return err
				})
				if err == nil {
					p.accepted.add(id)
				} else if !errors.Is(err, client.ErrDuplicate) { // an answer was cut off
					p.t.Errorf("broadcast %s: %v", id, err)
				}
			}
		})
	}
	producers.Wait()
}

// claimedJob is a job as claim answers it.
type claimedJob struct {
	ID, ClaimToken string
	Message        struct{ MessageID string }
}

// ask makes a worker's request to one of the brokers.
func (p *pair) ask(ctx context.Context, broker int, path string, body, answer any) error {
	tokens := http.Header{"X-Broker-Channel-Token": {"ct"}, "X-Broker-Consumer-Token": {"kt"}}
	_, err := client.NewAdmin("http://"+p.brokers[broker].listen, "", nil).Send(ctx, "POST", "/channel/ch/consumer/pull"+path, tokens, body, answer)
	return err
}

// claim claims jobs from one broker, and reports them to the other, until ctx ends.
func (p *pair) claim(ctx context.Context, from int) {
	m, other := p.brokers[from], p.brokers[1-from]
	for ctx.Err() == nil {
		var claimed struct{ Result []claimedJob }
		err := m.persist(ctx, func() error { return p.ask(ctx, from, "/claim?limit=5&wait=1s", nil, &claimed) })
		if err != nil && ctx.Err() == nil {
			p.t.Errorf("claim: %v", err)
			return
		}
		for _, j := range claimed.Result {
			err := other.persist(ctx, func() error {
				return p.ask(ctx, 1-from, "/job/"+j.ID, map[string]string{"NextState": "DELIVERED", "ClaimToken": j.ClaimToken}, nil)
			})
			answer, refused := errors.AsType[*client.Error](err)
			switch {
			case err == nil:
				p.settled.add(j.Message.MessageID)
			case (!refused || answer.Status != http.StatusConflict) && ctx.Err() == nil:
				p.t.Errorf("message %s, whose job a worker holds: %v", j.Message.MessageID, err)
			}
		}
	}
}

// round broadcasts n messages and waits until all accepted ones are pushed and settled. Meanwhile it kills victim, if that is not
// nil.
func (p *pair) round(number, n int, victim *mortal) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	var workers, producers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() { p.claim(ctx, w%len(p.brokers)) })
	}
	before, begin := p.accepted.count(), time.Now()
	producers.Go(func() { p.broadcast(ctx, number, n) })
	if victim != nil {
		waitUntil(p.t, func() bool { return p.accepted.count() > before+n/3 }, "broadcasts do not go on")
		victim.kill()
		victim.start()
	}
	producers.Wait()
	took, all := time.Since(begin), p.accepted.list()[before:]
	ok := assert.Eventually(p.t, func() bool {
		notPushed, _ := p.pushed.missing(all)
		notSettled, _ := p.settled.missing(all)
		return notPushed+notSettled == 0
	}, waitLongest, 20*time.Millisecond)
	cancel()
	workers.Wait()
	notPushed, _ := p.pushed.missing(all)
	notSettled, _ := p.settled.missing(all)
	p.t.Logf("round %d: %d accepted in %v, %d not pushed, %d not claimed; one broker was killed: %v", number, len(all), took.Round(time.Millisecond),
		notPushed, notSettled, victim != nil)
	require.True(p.t, ok, "messages that were accepted are lost")
}

// Two broker processes share a cluster of three server processes with three replicas. Both brokers are killed and restarted
// before each round of broadcasts, and in every other round one is killed during it. Their feeds come from replicas that may be
// ahead of the streams' leaders. Each message answered with 201 is pushed and can be claimed. No worker is answered that its
// claimed job does not exist.
func TestBrokersOnAClusterLoseNoJob(t *testing.T) {
	t.Parallel()
	rounds, messages := 20, 2500
	if testing.Short() {
		rounds, messages = 2, 300
	}
	urls := startMembers(t)
	p := &pair{t: t}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { p.pushed.add(r.Header.Get("X-Broker-Message-ID")) }))
	defer receiver.Close()
	for range 2 {
		m := &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0", nats: urls, copies: strconv.Itoa(memberCount)}
		t.Cleanup(m.kill)
		m.start()
		p.brokers = append(p.brokers, m)
		p.clients = append(p.clients, client.New("http://"+m.listen, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}))
	}
	putConsumer(t, p.brokers[0].node(), "push", receiver.URL, nil)
	putConsumer(t, p.brokers[0].node(), "pull", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	for round := range rounds {
		for _, m := range p.brokers {
			m.kill()
			m.start()
		}
		var victim *mortal
		if round%2 == 1 {
			victim = p.brokers[round/2%len(p.brokers)]
		}
		p.round(round, messages, victim)
	}
}
