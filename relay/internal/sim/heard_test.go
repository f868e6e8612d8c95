package sim

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
	"github.com/jetpull/jetpull/relay"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

// soon sets a take-over time after which a window that was assumed full is free within the minute.
func soon(c *relay.WorkConfig) { c.Takeover = 10 * time.Second }

func ok(string, int) *webhook.Answer { return answerOf(http.StatusOK, "1") }

// atPoint calls f the first time that a worker reaches a point.
func atPoint(t *testing.T, at string, f func(node string)) {
	var once sync.Once
	work.OnCrashpoint(func(node, point string) {
		if point == at {
			once.Do(func() { f(node) })
		}
	})
	t.Cleanup(func() { work.OnCrashpoint(func(_, _ string) {}) })
}

// An answer that the relay has received counts, even if the store cannot write it for a while.
func TestAnAnswerIsRetainedUntilItIsStored(t *testing.T) {
	alone(t, ok, nil, func(t *testing.T, s *single) {
		s.receiver(func(r *store.Receiver) { r.UnknownOutcome = store.AtMostOnce })
		records, err := s.store.JetStream().Stream(t.Context(), "KV_relay_messages")
		require.NoError(t, err)
		limit := func(size int32) {
			c := records.CachedInfo().Config
			c.MaxMsgSize = size
			_, err := s.store.JetStream().UpdateStream(t.Context(), c)
			require.NoError(t, err)
		}
		atPoint(t, "after-post", func(string) {
			limit(1)
			time.AfterFunc(time.Minute, func() { limit(-1) })
		})
		s.submit("1")
		v := s.awaitEnd("1", machine.Done, 5*time.Minute)
		require.Greater(t, v.EndedAt.Sub(v.ArrivedAt), time.Minute/2)
		require.Equal(t, http.StatusOK, v.Attempts[0].Code)
		require.Len(t, s.times(hookURL), 1)
	})
}

// silence lets a stream store writes for a second without answers.
func (s *single) silence(stream string) {
	silenced, err := s.store.JetStream().Stream(s.t.Context(), stream)
	require.NoError(s.t, err)
	silent := func(on bool) {
		c := silenced.CachedInfo().Config
		c.NoAck = on
		_, err := s.store.JetStream().UpdateStream(s.t.Context(), c)
		require.NoError(s.t, err)
	}
	silent(true)
	time.AfterFunc(time.Second, func() { silent(false) })
}

// SENDING is stored, and the answer to that write is lost. The process recognizes that it has sent nothing. A receiver with
// at_most_once gets the message once, and no attempt is used up.
func TestTheAnswerToSendingIsLost(t *testing.T) {
	alone(t, ok, nil, func(t *testing.T, s *single) {
		s.receiver(func(r *store.Receiver) { r.UnknownOutcome = store.AtMostOnce })
		atPoint(t, "before-sending", func(string) { s.silence("KV_relay_messages") })
		s.submit("1")
		v := s.awaitEnd("1", machine.Done, time.Minute)
		require.Equal(t, 1, v.Attempt)
		require.Len(t, s.times(hookURL), 1)
	})
}

// The window is taken, and the answer to that write is lost. The process recognizes its own write, and begins with what the previous
// process has left, although the window is long.
func TestTheAnswerToTheWindowIsLost(t *testing.T) {
	for _, left := range []bool{false, true} {
		alone(t, ok, nil, func(t *testing.T, s *single) {
			if left {
				_, err := s.store.PutWindow(t.Context(), "ci", store.Window{Left: true, Posts: []gate.Posts{{Count: 99}}})
				require.NoError(t, err)
			}
			s.receiver(func(r *store.Receiver) { r.RateLimit, r.Window = 100, time.Hour })
			atPoint(t, "before-create", func(string) { s.silence("KV_relay_state") })
			s.submit("1")
			s.awaitEnd("1", machine.Done, time.Minute)
			s.submit("2")
			<-time.After(time.Minute)
			require.Len(t, s.times(hookURL), map[bool]int{false: 2, true: 1}[left])
		})
	}
}

// A process takes a window that another one has without an end of its own. The receiver gets its messages after the window.
func TestAWindowOfAnother(t *testing.T) {
	alone(t, ok, soon, func(t *testing.T, s *single) {
		s.receiver(func(r *store.Receiver) { r.RateLimit, r.Window = 100, time.Second })
		atPoint(t, "before-create", func(string) {
			_, err := s.store.PutWindow(t.Context(), "ci", store.Window{})
			require.NoError(t, err)
		})
		s.submit("1")
		s.awaitEnd("1", machine.Done, time.Minute)
	})
}

// The same if the worker was restarted for another order while its window was assumed full.
func TestAnotherOrderWhileTheWindowIsFull(t *testing.T) {
	alone(t, ok, soon, func(t *testing.T, s *single) {
		limit := func(r *store.Receiver) { r.RateLimit, r.Window = 100, 10*time.Second }
		_, err := s.store.PutWindow(t.Context(), "ci", store.Window{})
		require.NoError(t, err)
		s.receiver(limit)
		s.submit("1")
		<-time.After(time.Second)
		s.receiver(func(r *store.Receiver) { limit(r); r.Order = store.OrderSource })
		s.awaitEnd("1", machine.Done, time.Minute)
	})
}

// An operator takes the pin of a receiver when its only message was delivered, before the process has the window. The server gives a new pin with the
// next delivery, so the process hands the message back.
func TestAnUnpinBeforeTheWindowIsTaken(t *testing.T) {
	alone(t, ok, soon, func(t *testing.T, s *single) {
		s.receiver(func(r *store.Receiver) { r.Order, r.RateLimit, r.Window = store.OrderSource, 100, time.Second })
		atPoint(t, "before-entry-on-disk", func(string) {
			stream := s.store.StreamName(store.ToReceiver)
			assert.NoError(t, jetpull.Unpin(t.Context(), s.store.JetStream(), stream, s.store.Durable(store.ToReceiver, "ci"), "relay"))
		})
		s.submit("1")
		s.awaitEnd("1", machine.Done, time.Minute)
	})
}

// A 410 from a previous endpoint of a receiver does not disable the receiver.
func TestALate410(t *testing.T) {
	const newURL = "http://ci/new"
	var s *single
	answer := func(url string, _ int) *webhook.Answer {
		if url == hookURL {
			s.receiver(func(r *store.Receiver) { r.PostEndpoint, r.MaxRetries = newURL, 3 })
			return answerOf(http.StatusGone, "")
		}
		return answerOf(http.StatusOK, "1")
	}
	alone(t, answer, nil, func(t *testing.T, alone *single) {
		s = alone
		s.receiver(func(r *store.Receiver) { r.MaxRetries = 3 })
		s.submit("1")
		s.awaitEnd("1", machine.Done, time.Minute)
		require.Len(t, s.times(newURL), 1)
	})
}

// Before a redrive sends a message that the receiver has, or may have, it asks the status endpoint. It sends the message only if
// the receiver does not know it.
func TestRedriveAsksFirst(t *testing.T) {
	for _, known := range []bool{true, false} {
		failed := false
		answer := func(url string, _ int) *webhook.Answer {
			switch {
			case url != callbackURL && !failed:
				return answerOf(http.StatusAccepted, "")
			case url == statusURL && !known:
				return answerOf(http.StatusNotFound, "")
			}
			return answerOf(http.StatusOK, "1")
		}
		alone(t, answer, func(c *relay.WorkConfig) { c.PollDeadline = time.Second }, func(t *testing.T, s *single) {
			s.receiver(withStatus)
			s.submit("1")
			s.awaitEnd("1", machine.Failed, time.Minute)
			s.until(time.Minute, func() bool { return len(s.failed()) == 1 }, "not on the list")
			failed = true
			item := s.failed()[0]
			require.Equal(t, machine.NoResponse, item.Reason)
			require.NoError(t, s.workers.Redrive(t.Context(), &item))
			s.awaitEnd("1", machine.Done, time.Minute)
			posts := map[bool]int{true: 1, false: 2}
			require.Len(t, s.times(hookURL), posts[known])
		})
	}
}

// A message whose next attempt is due after its time to live fails as soon as that is over, and is listed once.
func TestItExpiresBeforeItsNextAttempt(t *testing.T) {
	refuse := func(url string, _ int) *webhook.Answer {
		if url == hookURL {
			return answerOf(http.StatusTooEarly, "")
		}
		return answerOf(http.StatusOK, "")
	}
	alone(t, refuse, nil, func(t *testing.T, s *single) {
		s.receiver(func(r *store.Receiver) {
			r.Order, r.MaxRetries, r.RetryAfter, r.TTL = store.OrderSource, 3, 10*time.Minute, time.Minute
		})
		s.submit("1")
		v := s.awaitEnd("1", machine.Failed, 5*time.Minute)
		require.Less(t, v.EndedAt.Sub(v.ArrivedAt), time.Minute+time.Second)
		s.until(time.Minute, func() bool { return len(s.failed()) == 1 }, "not on the list")
		require.NoError(t, s.store.Settle(t.Context(), &s.failed()[0], store.Purge, false))
		<-time.After(20 * time.Minute)
		require.Empty(t, s.failed())
		require.Len(t, s.times(hookURL), 1)
	})
}
