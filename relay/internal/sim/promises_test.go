package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/relay"
	"github.com/jetpull/jetpull/relay/client"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

const (
	hookURL     = "http://ci/hook"
	statusURL   = "http://ci/status"
	callbackURL = "http://git/told"
)

// peers answers the requests of a relay as a test decides, and records them. A nil answer means that there is none.
type peers struct {
	answer func(url string, n int) *webhook.Answer

	mu  sync.Mutex
	at  map[string][]time.Time
	got []client.Result // the results that were reported to the sender
}

// Exchange implements work.Client. n counts the requests to a URL from 1.
func (p *peers) Exchange(_ context.Context, r webhook.Request) (*webhook.Answer, error) {
	<-time.After(time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at[r.URL] = append(p.at[r.URL], time.Now())
	answer := p.answer(r.URL, len(p.at[r.URL]))
	if answer == nil {
		return nil, errLost
	}
	var body client.Result
	if r.URL == callbackURL && answer.Code < 300 && json.Unmarshal(r.Body, &body) == nil {
		p.got = append(p.got, body)
	}
	return answer, nil
}

// times returns the times of the requests to a URL.
func (p *peers) times(url string) []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Time(nil), p.at[url]...)
}

func (p *peers) results() []client.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]client.Result(nil), p.got...)
}

func asking(code int, retryAfter string) *webhook.Answer {
	a := answerOf(code, "")
	a.Header.Set("Retry-After", retryAfter)
	return a
}

// single is a relay process in virtual time, with a receiver ci and a sender git.
type single struct {
	*peers
	t       *testing.T
	cfg     relay.WorkConfig
	srv     *natsembed.Server
	nc      *nats.Conn
	store   *store.Store
	workers *work.Workers
}

// alone runs a test with a relay in virtual time. It has the default configuration except for change and the take-over time. With
// a long take-over time the workers poll the server less often, and hours pass in seconds.
func alone(t *testing.T, answer func(url string, n int) *webhook.Answer, change func(*relay.WorkConfig), test func(*testing.T, *single)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // see TestSimulation
	ats.Register()
	defer ats.Unregister()
	natstest.EmptyTimerPool()
	synctest.Test(t, func(t *testing.T) {
		srv, err := natsembed.Start(t.Context(), natsembed.Options{Port: natsembed.NoPort})
		require.NoError(t, err)
		s := &single{peers: &peers{answer: answer, at: map[string][]time.Time{}}, t: t, srv: srv, cfg: relay.DefaultConfig().Relay}
		s.cfg.Takeover = time.Hour
		if change != nil {
			change(&s.cfg)
		}
		s.start()
		defer func() {
			s.stop()
			srv.Stop()
		}()
		s.receiver(nil)
		require.NoError(t, s.store.Senders.Put(t.Context(), store.Sender{Named: store.Named{Name: "git"}, SenderConfig: store.SenderConfig{
			CallbackEndpoint: callbackURL, Token: "x", Sources: []string{""},
		}}))
		test(t, s)
	})
}

func (s *single) start() {
	var err error
	s.nc, err = s.srv.Connect()
	require.NoError(s.t, err)
	log := slog.New(slog.DiscardHandler)
	s.store, err = store.Open(s.t.Context(), s.nc, store.Config{
		Name: "relay", Replicas: 1, Tombstone: s.cfg.Tombstone, Logger: log, Partitions: 1,
		// The server expires files by a clock outside the bubble.
		Storage: jetstream.MemoryStorage,
	})
	require.NoError(s.t, err)
	s.workers = work.Start(s.t.Context(), s.store, work.Config{
		Rules: s.cfg, Client: s.peers, Logger: log, Reporter: silent{},
	})
}

func (s *single) stop() {
	s.workers.Close()
	s.store.Close()
	s.nc.Close()
}

// receiver configures the receiver; change may be nil.
func (s *single) receiver(change func(*store.Receiver)) {
	r, err := s.store.Receivers.Read(s.t.Context(), "ci")
	if !errors.Is(err, store.ErrNotFound) {
		require.NoError(s.t, err)
	}
	revision := r.Revision
	r = store.Receiver{
		Named: store.Named{Name: "ci", Revision: revision}, Timeout: time.Second,
		ReceiverConfig: store.ReceiverConfig{PostEndpoint: hookURL, Order: store.OrderNone, UnknownOutcome: store.AtLeastOnce},
	}
	if change != nil {
		change(&r)
	}
	require.NoError(s.t, s.store.Receivers.Put(s.t.Context(), r))
}

func withStatus(r *store.Receiver) { r.StatusEndpoint = statusURL }

func (s *single) submit(id string) *work.Intake {
	s.t.Helper()
	v := s.workers.Submit(s.t.Context(), []work.Offer{{Source: "a", ID: id, Receiver: "ci", Sender: "git", Payload: []byte(`{"n":1}`)}})[0]
	require.NoError(s.t, v.Err)
	return v
}

// until waits for a condition in virtual time, and checks it a few hundred times.
func (s *single) until(bound time.Duration, met func() bool, otherwise string) {
	s.t.Helper()
	for deadline := time.Now().Add(bound); !met(); <-time.After(bound / 500) {
		if time.Now().After(deadline) {
			s.t.Fatal(otherwise)
		}
	}
}

// awaitEnd waits until a message has ended and the end was reported to the sender.
func (s *single) awaitEnd(id string, status machine.Status, bound time.Duration) (v store.Versioned) {
	s.t.Helper()
	s.until(bound, func() bool {
		var err error
		v, err = s.store.Load(s.t.Context(), "a", id)
		return err == nil && v.Status == status && (status == machine.Done || v.Reported)
	}, fmt.Sprintf("%s is not %s", id, status))
	return v
}

func (s *single) failed() []store.Item {
	s.t.Helper()
	items, err := s.store.ListFailed(s.t.Context(), store.Filter{}, 0, 0)
	require.NoError(s.t, err)
	return items
}

// A completed message is known as long as its tombstone is kept. After that the same message is a new one. A failed message is
// known as long as it can be redriven.
func TestTombstone(t *testing.T) {
	const tombstone = 10 * time.Minute
	answer := func(url string, n int) *webhook.Answer {
		if url == hookURL && n == 2 {
			return answerOf(http.StatusUnprocessableEntity, "")
		}
		return answerOf(http.StatusOK, "1")
	}
	alone(t, answer, func(c *relay.WorkConfig) { c.Tombstone = tombstone }, func(t *testing.T, s *single) {
		require.Equal(t, work.Accepted, s.submit("done").Outcome)
		done := s.awaitEnd("done", machine.Done, time.Minute)
		require.Equal(t, work.Accepted, s.submit("failed").Outcome)
		s.awaitEnd("failed", machine.Failed, time.Minute)

		<-time.After(time.Until(done.EndedAt.Add(tombstone - time.Minute)))
		again := s.submit("done")
		require.Equal(t, work.Duplicate, again.Outcome)
		require.Equal(t, machine.Done, again.Status)
		<-time.After(2 * time.Minute)
		_, err := s.store.Load(t.Context(), "a", "done")
		require.ErrorIs(t, err, store.ErrNotFound)
		again2 := s.submit("failed")
		require.Equal(t, work.Duplicate, again2.Outcome)
		require.Equal(t, machine.Failed, again2.Status)
		require.Len(t, s.times(hookURL), 2)
		require.Equal(t, work.Accepted, s.submit("done").Outcome)
		s.awaitEnd("done", machine.Done, time.Minute)
		require.Len(t, s.times(hookURL), 3)
	})
}

// A receiver that answers 202 and then has no result is polled until the deadline. Then the message fails, its failure is
// reported to the sender, and it is on the list.
func TestPollDeadline(t *testing.T) {
	const deadline = 10 * time.Minute
	answer := func(url string, _ int) *webhook.Answer {
		if url == callbackURL {
			return answerOf(http.StatusNoContent, "")
		}
		return answerOf(http.StatusAccepted, "")
	}
	alone(t, answer, func(c *relay.WorkConfig) { c.PollDeadline = deadline }, func(t *testing.T, s *single) {
		s.receiver(withStatus)
		begin := time.Now()
		s.submit("1")
		v := s.awaitEnd("1", machine.Failed, deadline+time.Minute)
		require.GreaterOrEqual(t, v.EndedAt.Sub(begin), deadline)
		polls := s.times(statusURL)
		require.Greater(t, polls[len(polls)-1].Sub(begin), deadline-time.Minute, "it is asked until then")
		results := s.results()
		require.Len(t, results, 1)
		require.Equal(t, string(machine.Failed), results[0].Status)
		require.EqualValues(t, machine.NoResponse, results[0].Error.Code)
		require.EqualValues(t, machine.FromReceiver, results[0].Error.Stage)
		items := s.failed()
		require.Len(t, items, 1)
		require.Equal(t, machine.NoResponse, items[0].Reason)
		require.Len(t, s.times(hookURL), 1, "the receiver has it: it is not sent again")
	})
}

// Polls and callbacks keep to a Retry-After in seconds or as a date, whether it is longer or shorter than the relay's own pauses,
// which begin at a second at most and double up to ten.
func TestPausesBetweenRequests(t *testing.T) {
	lost := func(n int) *webhook.Answer {
		if n == 1 {
			return nil
		}
		return answerOf(http.StatusOK, "1")
	}
	lostLate := func(n int) *webhook.Answer {
		if n == 1 {
			<-time.After(20 * time.Second)
		}
		return lost(n)
	}
	for _, tt := range []struct {
		name, url string
		code      int
		post      func(n int) *webhook.Answer
	}{
		{"poll", statusURL, http.StatusAccepted, func(int) *webhook.Answer { return answerOf(http.StatusAccepted, "") }},
		{"poll that fails", statusURL, http.StatusServiceUnavailable, func(int) *webhook.Answer { return answerOf(http.StatusAccepted, "") }},
		{"after a lost answer", statusURL, http.StatusServiceUnavailable, lost},
		{"after an answer that is lost late", statusURL, http.StatusServiceUnavailable, lostLate},
		{"callback", callbackURL, http.StatusServiceUnavailable, func(int) *webhook.Answer { return answerOf(http.StatusOK, "1") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const own, asked = 10, 3 // requests with a pause of the relay's own, followed by requests with a Retry-After
			answer := func(url string, n int) *webhook.Answer {
				switch {
				case url == hookURL:
					return tt.post(n)
				case url != tt.url || n > own+asked:
					return answerOf(http.StatusOK, "2")
				case n <= own:
					return answerOf(tt.code, "")
				case n == own+1:
					return asking(tt.code, "100")
				case n == own+2:
					return asking(tt.code, time.Now().Add(200*time.Second).UTC().Format(http.TimeFormat))
				}
				return asking(tt.code, "2")
			}
			alone(t, answer, nil, func(t *testing.T, s *single) {
				s.receiver(withStatus)
				s.submit("1")
				s.awaitEnd("1", machine.Done, time.Hour)
				at := s.times(tt.url)
				require.Len(t, at, own+asked+1)
				var pauses []time.Duration
				for i := range at[1:] {
					pauses = append(pauses, at[i+1].Sub(at[i]))
				}
				t.Log(pauses)
				const slack = time.Second // for the server's timers, and for dates without fractions
				require.LessOrEqual(t, pauses[0], time.Second)
				for i := range pauses[:own] {
					require.LessOrEqual(t, pauses[i], 10*time.Second+slack)
				}
				require.GreaterOrEqual(t, pauses[own-1], 10*time.Second)
				require.InDelta(t, 100, pauses[own].Seconds(), slack.Seconds())
				require.InDelta(t, 200, pauses[own+1].Seconds(), slack.Seconds())
				require.InDelta(t, 2, pauses[own+2].Seconds(), slack.Seconds())
			})
		})
	}
}

// Messages that fail because their receiver does not work are redriven after 10 minutes, then after an hour, and then held.
func TestAutomaticRedriveByDefault(t *testing.T) {
	answer := func(url string, _ int) *webhook.Answer {
		if url == hookURL {
			return answerOf(http.StatusInternalServerError, "")
		}
		return answerOf(http.StatusOK, "")
	}
	alone(t, answer, nil, func(t *testing.T, s *single) {
		s.submit("1")
		s.until(90*time.Minute, func() bool { return len(s.results()) == 3 }, "it is not redriven twice")
		<-time.After(65 * time.Minute)
		at := s.times(hookURL)
		require.Len(t, at, 3)
		require.InDelta(t, 600, at[1].Sub(at[0]).Seconds(), 5)
		require.InDelta(t, 3600, at[2].Sub(at[1]).Seconds(), 5)
		items := s.failed()
		require.Len(t, items, 1)
		require.Equal(t, 2, items[0].Redrives)
	})
}

// A failed message can be redriven for 30 days and is then removed. The test checks the server's settings instead of waiting: a
// month of its timers takes minutes.
func TestFailedMessagesAreForgotten(t *testing.T) {
	const age = 30 * 24 * time.Hour
	answer := func(url string, _ int) *webhook.Answer {
		if url == hookURL {
			return answerOf(http.StatusUnprocessableEntity, "")
		}
		return answerOf(http.StatusOK, "")
	}
	alone(t, answer, nil, func(t *testing.T, s *single) {
		failed, err := s.store.JetStream().Stream(t.Context(), s.store.StreamName(store.FailedMessages))
		require.NoError(t, err)
		require.Equal(t, age, failed.CachedInfo().Config.MaxAge)
		list := func(id string, before time.Duration) {
			e := store.Entry{}
			e.Source, e.ID, e.Receiver, e.EndedAt, e.Failure = "a", id, "ci", time.Now().Add(-before), &machine.Failure{Reason: machine.Permanent}
			require.NoError(t, s.store.PutFailed(t.Context(), &e))
		}
		list("older", age+time.Minute)
		s.submit("1")
		v := s.awaitEnd("1", machine.Failed, time.Minute)
		list("younger", age-time.Minute)
		records, err := s.store.JetStream().Stream(t.Context(), "KV_relay_messages")
		require.NoError(t, err)
		record, err := records.GetMsg(t.Context(), v.Revision)
		require.NoError(t, err)
		require.Equal(t, age.String(), record.Header.Get("Nats-TTL"), "it is known as long as it is on the list")
		var listed []string
		for _, item := range s.failed() {
			listed = append(listed, item.ID)
		}
		require.ElementsMatch(t, []string{"1", "younger"}, listed)
	})
}

// All messages of a receiver to which nothing is sent expire in time, though the relay works on a few of them at a time.
func TestAllExpireWhileTheReceiverIsPaused(t *testing.T) {
	const messages, ttl = 300, time.Minute
	for _, order := range []store.Order{store.OrderNone, store.OrderSource, store.OrderReceiver} {
		alone(t, ok, nil, func(t *testing.T, s *single) {
			s.receiver(func(r *store.Receiver) { r.Order, r.Paused, r.TTL = order, true, ttl })
			for i := range messages {
				s.submit(fmt.Sprint(i))
			}
			for i := range messages {
				v := s.awaitEnd(fmt.Sprint(i), machine.Failed, 2*ttl)
				require.Equal(t, machine.Expired, v.Failure.Reason)
				require.Less(t, v.EndedAt.Sub(v.ArrivedAt), ttl+5*time.Second, order)
			}
			require.Empty(t, s.times(hookURL))
		})
	}
}
