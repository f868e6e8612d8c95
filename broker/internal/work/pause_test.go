package work

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/webhook/breaker"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
)

// openingRules open a breaker when half of the callbacks have failed.
var openingRules = breaker.Rules{FailurePercent: 50, MinCallbacks: 4, Window: time.Minute, Open: 30 * time.Second}

// A failing receiver gets no callbacks for a time, and then a single one. When that succeeds, it gets all waiting jobs. Operators
// are notified.
func TestBreakerOfALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 40
		d := dispatch(t, jobs)
		defer d.stop()
		d.Rules.Rules = openingRules
		d.Rules.Backoff, d.Rules.MaxRetry = domain.Backoff{time.Second}, 100
		d.receiver.fail = errors.New("500")
		d.begin()
		require.Len(t, d.receiver.called(), 4)
		require.Equal(t, breaker.Open, d.Dispatch.State(pushed).Breaker)
		require.Equal(t, 1, openBreakers(t, d.Metrics))
		time.Sleep(openingRules.Open - time.Second)
		require.Len(t, d.receiver.called(), 4)
		time.Sleep(2 * time.Second)
		require.Len(t, d.receiver.called(), 5, "the probe")
		d.receiver.mu.Lock()
		d.receiver.fail = nil
		d.receiver.mu.Unlock()
		time.Sleep(openingRules.Open + time.Second)
		synctest.Wait()
		require.GreaterOrEqual(t, len(d.receiver.called()), jobs)
		require.Equal(t, breaker.Closed, d.Dispatch.State(pushed).Breaker)
		require.Zero(t, openBreakers(t, d.Metrics))
		require.Equal(t, []float64{1, 1}, []float64{d.counted(t, EventOpened), d.counted(t, EventClosed)}, "a probe that fails is no news")
	})
}

// openBreakers returns the number of open circuit breakers in the metrics.
func openBreakers(t *testing.T, m *Metrics) int {
	t.Helper()
	families, err := m.Registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "broker_breaker_open" {
			return len(f.GetMetric())
		}
	}
	return 0
}

// callEnds has a lane count a callback that ends now.
func callEnds(l *lane, c domain.Consumer, success bool) {
	l.mu.Lock()
	config := l.configLocked(true, false)
	ended := call{consumer: c, config: config, permit: l.gate.Begin(config, time.Now())}
	l.mu.Unlock()
	if success {
		l.finish(ended, gate.Success, newResult(time.Now(), 0, nil, nil))
		return
	}
	l.finish(ended, gate.Failure, newResult(time.Now(), 0, nil, errors.New("refused")))
}

// counted returns how often operators were notified of an event.
func (d *dispatching) counted(t *testing.T, event string) (n float64) {
	t.Helper()
	families, err := d.Metrics.Registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != "broker_consumer_events_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == event {
				n = m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// A consumer whose callbacks fail for days is paused. One success resets the time, and so does another process that makes the callbacks.
func TestPauseAfterFailingForDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		d := dispatch(t, 0)
		defer d.stop()
		d.Rules.PauseAfter = 2 * day
		d.begin()
		consumer := func() domain.Consumer {
			synctest.Wait()
			c, _ := d.store.RefreshConsumer(t.Context(), "ch", "k")
			return c
		}
		call := func(success bool) {
			callEnds(d.Dispatch.lane(1), consumer(), success)
			d.change(consumer()) // the feed reports the change
		}
		begin := time.Now()
		call(false)
		time.Sleep(3 * time.Hour)
		call(false)
		require.True(t, d.Dispatch.State(consumer()).FailingSince.Equal(begin))
		call(true)
		require.Zero(t, d.Dispatch.State(consumer()).FailingSince)

		// A node knew of failures. It gets the shard back days after a success on another node, and starts a new count.
		call(false)
		time.Sleep(3 * day)
		d.Dispatch.gained(d.Dispatch.lane(1).shard)
		call(false)
		require.False(t, consumer().Paused())
		call(true)

		call(false)
		time.Sleep(3 * day) // no callbacks
		require.False(t, consumer().Paused(), "one callback has failed")
		call(false)
		require.Equal(t, domain.PausedFailing, consumer().Pause.Reason)
		require.Equal(t, time.Now().UTC(), consumer().Pause.At)
		require.EqualValues(t, 1, d.counted(t, EventPaused))

		_, err := d.Dispatch.SetPause(t.Context(), "ch", "k", 0, "")
		require.NoError(t, err)
		d.change(consumer())
		call(false)
		require.False(t, consumer().Paused(), "with a clean slate")
	})
}

// A consumer that was deleted and recreated with the same ID is another one. Callbacks of the old consumer that end after the
// delete neither pause the new one nor cause events about its circuit breaker.
func TestFailuresBeforeADeleteAreNotOfTheNextConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		d := dispatch(t, 0)
		defer d.stop()
		d.Rules.PauseAfter = 2 * day
		d.Rules.Rules = breaker.Rules{FailurePercent: 50, MinCallbacks: 3, Window: 30 * day, Open: time.Hour}
		d.begin()
		old := d.Dispatch.lane(pushed.Number)
		callEnds(old, pushed, false)
		time.Sleep(3 * day)
		next := pushed
		next.Number, next.Revision = 2, 7
		d.store.consumer = next
		callEnds(old, pushed, false) // the feed reports the delete later
		now, _ := d.store.RefreshConsumer(t.Context(), "ch", "k")
		require.Equal(t, next, now)
		require.Zero(t, d.counted(t, EventPaused))

		d.store.index.RemoveConsumer(pushed.Number)
		d.store.index.PutConsumer("ch", next)
		synctest.Wait()
		callEnds(old, pushed, false)
		require.Zero(t, d.counted(t, EventOpened), "there is one by that ID whose callbacks did not fail")
	})
}

// Repeated pauses and resumes cause one event each.
func TestPauseIsReportedOnce(t *testing.T) {
	d := dispatch(t, 0)
	defer d.stop()
	for range 2 {
		c, err := d.Dispatch.SetPause(t.Context(), "ch", "k", 0, domain.PausedByOperator)
		require.NoError(t, err)
		require.Equal(t, domain.PausedByOperator, c.Pause.Reason)
	}
	for range 2 {
		c, err := d.Dispatch.SetPause(t.Context(), "ch", "k", 0, "")
		require.NoError(t, err)
		require.Zero(t, c.Pause)
	}
	require.Equal(t, []float64{1, 1}, []float64{d.counted(t, EventPaused), d.counted(t, EventResumed)})
	_, err := d.Dispatch.SetPause(t.Context(), "ch", "none", 0, domain.PausedByOperator)
	require.ErrorIs(t, err, domain.ErrNotFound)
}

// A resume closes an open circuit breaker.
func TestResumeClosesTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 0)
		defer d.stop()
		d.Rules.Rules = breaker.Rules{FailurePercent: 50, MinCallbacks: 1, Window: time.Minute, Open: time.Hour}
		d.begin()
		callEnds(d.Dispatch.lane(1), pushed, false)
		require.EqualValues(t, 1, d.counted(t, EventOpened))
		paused := pushed
		paused.Pause = domain.Pause{Reason: domain.PausedByOperator, At: time.Now()}
		d.change(paused)
		d.change(pushed)
		require.Equal(t, breaker.Closed, d.Dispatch.State(pushed).Breaker)
	})
}
