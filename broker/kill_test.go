package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/broker/internal/domain"
)

// repetitions is how often a test injects its fault: n times, and three times with -short, as in ci.
func repetitions(n int) int {
	if testing.Short() {
		return 3
	}
	return n
}

// fewer is how many messages a test uses: n, or a third with -short.
func fewer(n int) int {
	if testing.Short() {
		return n / 3
	}
	return n
}

var producer = client.Producer{Channel: "ch", ChannelToken: "ct", ID: "pr", Token: "pt"}

// killDuring kills and restarts the process while a request is in flight: sent completely and not answered. A kill after the last
// answer does not count and is repeated. It returns how many processes it has killed and how many requests were cut off.
func (m *mortal) killDuring(f *flights) (killed, cut int) {
	m.t.Helper()
	for range 10 {
		waitUntil(m.t, func() bool { flying, _ := f.counts(); return flying > 0 }, "no request is in flight")
		_, before := f.counts()
		m.kill()
		waitUntil(m.t, func() bool { flying, _ := f.counts(); return flying == 0 }, "requests to a killed process do not end")
		_, after := f.counts()
		m.start()
		killed++
		if after > before {
			return killed, after - before
		}
	}
	m.t.Fatal("10 kills in a row came after the last answer")
	return 0, 0
}

// A broker process is killed 20 times while broadcasts are in flight. Each answered broadcast is delivered to a push and to a
// pull consumer. A broadcast without an answer can be repeated, and is stored once. At the end the history of each job is
// complete, and has everything that it had before a kill.
func TestKilledDuringBroadcast(t *testing.T) {
	m := startMortal(t)
	var pulled tally
	var pushed moody
	receiver := httptest.NewServer(&pushed)
	defer receiver.Close()
	putConsumer(t, m.node(), "push", receiver.URL, nil)
	putConsumer(t, m.node(), "pull", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	f := newFlights(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/broadcast") })
	c := f.client(m)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var accepted ids
	var stored atomic.Int64 // cut off, and stored all the same
	var producing atomic.Bool
	producing.Store(true)
	var producers, background sync.WaitGroup
	for p := range 8 {
		producers.Go(func() {
			for i := 0; producing.Load(); i++ {
				id, tries := fmt.Sprintf("%d-%d", p, i), 0
				err := m.persist(ctx, func() error {
					tries++
					_, err := c.Broadcast(ctx, producer, client.Message{ID: id, Payload: []byte(id)})
					return err
				})
				if errors.Is(err, client.ErrDuplicate) && tries > 1 {
					stored.Add(1)
					err = nil
				}
				if err != nil {
					t.Errorf("broadcast %s: %v", id, err)
					return
				}
				accepted.add(id)
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
	killed, cut := 0, 0
	shown := histories{}
	for kill := range repetitions(20) {
		// A sample only: broadcasts go on meanwhile, and reading all of them would take longer each time.
		lately := failing(accepted.list())
		shown.check(t, m.node(), "push", lately[max(0, len(lately)-10):], time.Now())
		// Some kills come soon after the start, others under full load.
		target := accepted.count() + 10*(kill%5)
		waitUntil(t, func() bool { return accepted.count() >= target }, "broadcasts do not go on")
		k, n := m.killDuring(f)
		killed, cut = killed+k, cut+n
	}
	producing.Store(false)
	producers.Wait()
	all := accepted.list()
	waitUntil(t, func() bool {
		missedPull, _ := pulled.missing(all)
		return missedPull == 0 && deliveredJobs(t, m.node(), "push") == len(all)
	}, "messages that were accepted are not delivered")
	cancel()
	background.Wait()
	failures, missing := shown.check(t, m.node(), "push", all, time.Now())
	require.Zero(t, missing, "attempts are missing")
	require.GreaterOrEqual(t, failures, len(failing(all))-killed*killConcurrency)
	_, repeatedPush := pushed.calls.missing(all)
	repeatedPush -= failures
	_, repeatedPull := pulled.missing(all)
	t.Logf("%d accepted; %d kills cut %d broadcasts, of which %d were stored; %d callbacks and %d pulled jobs repeated; %d failures in the histories",
		len(all), killed, cut, stored.Load(), repeatedPush, repeatedPull, failures)
	require.LessOrEqual(t, repeatedPush, killed*killConcurrency)
	require.LessOrEqual(t, repeatedPull, killed*killConcurrency)
}

// holder is a receiver of callbacks. It keeps those of two messages per round open until the process that made them is dead.
type holder struct {
	moody
	round atomic.Int64
	held  atomic.Int64
	freed chan struct{} // releases the rest at the end of the test
}

const heldPerRound = 2

func (h *holder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.moody.ServeHTTP(w, r)
	id := r.Header.Get("X-Broker-Message-ID")
	if !strings.HasPrefix(id, fmt.Sprintf("hold-%d-", h.round.Load())) {
		return
	}
	h.held.Add(1)
	defer h.held.Add(-1)
	_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client is gone
	select {
	case <-r.Context().Done():
	case <-h.freed:
	}
}

// deliveredJobs counts the delivered jobs of a consumer.
func deliveredJobs(t testing.TB, n *Node, consumer string) int {
	return jobCounts(t, n, consumer)[domain.Delivered]
}

// jobCounts is how many jobs of a consumer are in each state.
func jobCounts(t testing.TB, n *Node, consumer string) map[domain.JobStatus]int {
	t.Helper()
	code, body, _ := call(t, n, "GET", "/job-status", nil, "")
	require.Equal(t, 200, code, body)
	var list map[string]map[string][]struct {
		Status domain.JobStatus
		Count  int
	}
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	counts := map[domain.JobStatus]int{}
	for _, c := range list["ch"][consumer] {
		counts[c.Status] = c.Count
	}
	return counts
}

// A broker process is killed 20 times while its receiver keeps callbacks open. These callbacks are repeated, and most others are
// not. No attempt with an outcome is lost. The next process begins where the one before it ended: it does not wait until the
// claims of that process end, which would take an hour.
func TestKilledDuringDispatch(t *testing.T) {
	m := &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0", claims: "1h"}
	t.Cleanup(m.kill)
	m.start()
	h := &holder{freed: make(chan struct{})}
	receiver := httptest.NewServer(h)
	defer receiver.Close()
	defer close(h.freed)
	putConsumer(t, m.node(), "k", receiver.URL, nil)
	c := client.New("http://"+m.listen, nil)
	var all, held, others []string
	shown, inHistory := histories{}, 0
	for kill := range repetitions(20) {
		var flowing []string
		for i := range 10 {
			id := fmt.Sprintf("flow-%d-%d", kill, i)
			if i == 3 || i == 6 {
				id = fmt.Sprintf("hold-%d-%d", kill, i)
				held = append(held, id)
			} else {
				flowing = append(flowing, id)
			}
			_, err := c.Broadcast(t.Context(), producer, client.Message{ID: id, Payload: []byte("x")})
			require.NoError(t, err)
			all = append(all, id)
		}
		others = append(others, flowing...)
		waitUntil(t, func() bool { return h.held.Load() == heldPerRound }, "the callbacks to be held do not come")
		if kill%2 == 0 {
			// The rest is delivered, or in any other state.
			waitUntil(t, func() bool {
				failures, _ := shown.check(t, m.node(), "k", failing(flowing), time.Now())
				missing, _ := h.calls.missing(flowing)
				return failures == len(failing(flowing)) && missing == 0
			}, "held callbacks hold the others")
			inHistory += len(failing(flowing))
		}
		require.EqualValues(t, heldPerRound, h.held.Load(), "at the kill")
		m.kill()
		waitUntil(t, func() bool { return h.held.Load() == 0 }, "callbacks of a killed process do not end")
		h.round.Add(1)
		m.start()
	}
	// A query for each message would take much of the test's time.
	waitUntil(t, func() bool { return deliveredJobs(t, m.node(), "k") == len(all) }, "messages that were accepted are not delivered")
	for _, id := range all {
		require.Equal(t, "DELIVERED", jobStates(t, m.node(), id)["k"], "message %s", id)
	}
	failures, missing := shown.check(t, m.node(), "k", all, time.Now())
	require.Zero(t, missing, "attempts are missing")
	require.GreaterOrEqual(t, failures, inHistory)
	_, repeatedHeld := h.calls.missing(held)
	_, repeatedOthers := h.calls.missing(others)
	repeatedOthers -= failures
	t.Logf("%d callbacks held at %d kills were repeated %d times, and %d of %d others; %d failures in the histories", len(held), repetitions(20),
		repeatedHeld, repeatedOthers, len(others), failures)
	require.GreaterOrEqual(t, repeatedHeld, len(held), "what had no answer is called again")
	require.LessOrEqual(t, repeatedHeld+repeatedOthers, repetitions(20)*killConcurrency)
}

// A broker process is killed 20 times while transitions are in flight. Each can be repeated with its claim token. An answered one
// is final: its job has that state at the end, and no worker got it afterwards.
func TestKilledDuringTransition(t *testing.T) {
	m := startMortal(t)
	putConsumer(t, m.node(), "k", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	f := newFlights(func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/job/") })
	c := f.client(m)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var accepted, answered ids
	var claimed tally
	var mu sync.Mutex
	outcome := map[string]string{}

	const backlog = 100
	slots := make(chan struct{}, backlog)
	var producing atomic.Bool
	producing.Store(true)
	var producers, workers sync.WaitGroup
	producers.Go(func() {
		for i := 0; producing.Load(); i++ {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			id := fmt.Sprint(i)
			err := m.persist(ctx, func() error {
				_, err := c.Broadcast(ctx, producer, client.Message{ID: id, Payload: []byte("x")})
				return err
			})
			if err != nil && !errors.Is(err, client.ErrDuplicate) {
				t.Errorf("broadcast %s: %v", id, err)
				return
			}
			accepted.add(id)
		}
	})
	work := func(j *client.Job) {
		claimed.add(j.MessageID)
		state, report := "DELIVERED", j.Delivered
		if strings.HasSuffix(j.MessageID, "3") {
			state, report = "DEAD", j.Dead
		}
		mu.Lock()
		if was := outcome[j.MessageID]; was != "" {
			t.Errorf("message %s was claimed after it was answered %s", j.MessageID, was)
		}
		mu.Unlock()
		err := m.persist(ctx, func() error { return report(ctx) })
		switch {
		case err == nil:
			mu.Lock()
			outcome[j.MessageID] = state
			mu.Unlock()
			answered.add(j.MessageID)
			<-slots
		case !errors.Is(err, client.ErrClaimLost) && ctx.Err() == nil:
			t.Errorf("message %s: %v", j.MessageID, err)
		}
	}
	for range killConcurrency {
		workers.Go(func() {
			k := c.Consumer("ch", "ct", "k", "kt")
			for ctx.Err() == nil {
				var jobs []*client.Job
				err := m.persist(ctx, func() (err error) {
					jobs, err = k.Claim(ctx, 1, 0, waitLong)
					return err
				})
				if err != nil && ctx.Err() == nil {
					t.Errorf("claim: %v", err)
					return
				}
				for _, j := range jobs {
					work(j)
				}
			}
		})
	}
	killed, cut := 0, 0
	for kill := range repetitions(20) {
		target := answered.count() + 10*(kill%5)
		waitUntil(t, func() bool { return answered.count() >= target }, "transitions do not go on")
		k, n := m.killDuring(f)
		killed, cut = killed+k, cut+n
	}
	producing.Store(false)
	producers.Wait()
	all := accepted.list()
	waitUntil(t, func() bool { return answered.count() >= len(all) }, "jobs of messages that were accepted are not done")
	cancel()
	workers.Wait()
	for _, id := range all {
		require.Equal(t, outcome[id], jobStates(t, m.node(), id)["k"], "message %s", id)
	}
	_, repeated := claimed.missing(all)
	t.Logf("%d jobs done; %d kills cut %d transitions; %d jobs were claimed again", len(all), killed, cut, repeated)
	require.Len(t, outcome, len(all))
	require.LessOrEqual(t, repeated, killed*killConcurrency)
}
