package jetpull_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// After a fault that begins during a call and ends before its deadline, the call continues within
// a second.
func TestCallsOverFaults(t *testing.T) {
	outage := func(d time.Duration) model.Config {
		return model.Config{Replicas: 3, Outage: model.Delay{Min: d, Max: d}}
	}
	for name, tt := range map[string]struct {
		server model.Config
		do     func(*world)
		most   time.Duration
		quick  bool // before the first pull was answered
	}{
		"a new leader":           {outage(0), func(w *world) { w.C().StepDown() }, 2 * second, false},
		"no leader":              {outage(3 * second), func(w *world) { w.C().StepDown() }, 5 * second, false},
		"a shutdown":             {model.Config{}, func(w *world) { w.Model.Shutdown(); stage.Pass(5 * second); w.Model.Start() }, 7 * second, false},
		"a cut":                  {model.Config{}, func(w *world) { w.disconnect(); stage.Pass(5 * second); w.reconnect() }, 7 * second, false},
		"a cut in a quick pull":  {model.Config{}, func(w *world) { w.disconnect(); stage.Pass(5 * second); w.reconnect() }, 7 * second, true},
		"a network that is dead": {model.Config{}, func(w *world) { w.Hush(5 * second) }, 9 * second, false},
	} {
		t.Run(name, atStage(stage.Config{Model: tt.server}, func(t *testing.T, w *world) {
			if tt.quick {
				w.TakePulls(stage.All)
			}
			got := w.fetch(t.Context(), 5, jetpull.MaxWait(20*second))
			stage.Pass(second)
			w.TakePulls(nil)
			before := len(w.Pulls())
			tt.do(w)
			w.Publish(1)
			r := <-got
			require.NoError(t, r.err)
			require.LessOrEqual(t, r.at, tt.most)
			require.LessOrEqual(t, len(w.Pulls())-before, 9)
		}))
	}
}

// During a lasting fault, the call ends by its deadline and says so, and the next call returns the
// available messages.
func TestCallsThatCannotPull(t *testing.T) {
	pin := []jetpull.SubscribeOption{jetpull.Group("g")}
	again := func(w *world) { w.TakePulls(nil) }
	var held *jetpull.Msg
	for name, tt := range map[string]struct {
		begin, end func(*world)
		is         error
		cfg        jetstream.ConsumerConfig
		opts       []jetpull.SubscribeOption
	}{
		"disconnected":   {begin: (*world).disconnect, end: (*world).reconnect},
		"a black hole":   {begin: func(w *world) { w.Peer.Pause(true) }, end: func(w *world) { w.Peer.Pause(false) }},
		"no answers":     {begin: func(w *world) { w.TakePulls(stage.All) }, end: again},
		"no responders":  {begin: func(w *world) { w.answer(503, "") }, end: again, is: jetpull.ErrNoResponders},
		"leader changes": {begin: func(w *world) { w.answer(409, "Leadership Change") }, end: again, is: jetpull.ErrLeadershipChanged},
		"a pause":        {begin: func(w *world) { w.C().Pause(time.Now().Add(time.Hour)) }, end: func(w *world) { w.C().Pause(time.Time{}) }},
		"MaxAckPending": {
			begin: func(w *world) { held = w.take(1)[0] }, end: func(w *world) { require.NoError(w.t, held.Ack()) },
			cfg: jetstream.ConsumerConfig{MaxAckPending: 1},
		},
		"another's pin": {
			begin: func(w *world) {
				w.Publish(1)
				m, err := w.subscribe(natstest.JetStream(w.t, w.Connect()), pin...).Next(w.t.Context())
				require.NoError(w.t, err)
				require.NoError(w.t, m.Ack())
			}, end: func(w *world) { w.C().Unpin("g") }, cfg: pinnedCfg, opts: pin,
		},
	} {
		t.Run(name, at(tt.cfg, func(t *testing.T, w *world) {
			tt.begin(w)
			got := w.next(t.Context(), jetpull.MaxWait(3*time.Second))
			c, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			bounded := <-w.next(c)
			r := <-got
			require.ErrorIs(t, bounded.err, context.DeadlineExceeded)
			for _, err := range []error{bounded.err, r.err} {
				require.ErrorIs(t, err, jetpull.ErrTimeout)
				require.True(t, tt.is == nil || errors.Is(err, tt.is), "%v", err)
			}
			for wait, at := range map[time.Duration]time.Duration{2 * time.Second: bounded.at, 3 * time.Second: r.at} {
				require.LessOrEqual(t, at, wait)
				require.GreaterOrEqual(t, at, wait-100*time.Millisecond, "where the server ends the pull")
			}
			require.Equal(t, name == "no answers" || name == "a black hole", w.sub.Stats().Silent > 0)
			require.True(t, name != "no answers" || strings.Contains(r.err.Error(), "check the link"), "what to do: %v", r.err)
			if name == "MaxAckPending" || name == "a pause" {
				w.Publish(1)
				stage.Pass(second)
				now := <-w.fetch(t.Context(), 10, jetpull.NoWait())
				require.ErrorIs(t, now.err, jetpull.ErrNoMessages)
				require.LessOrEqual(t, now.at-r.at, 2200*milli)
			}
			w.Publish(1)
			tt.end(w)
			stage.Pass(time.Second)
			_, err := w.sub.Next(t.Context())
			require.NoError(t, err)
			require.Len(t, w.C().Held(), 1, "what was held back has gone back")
		}, tt.opts...))
	}
}

func TestAClosedConnection(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		got := w.next(t.Context(), jetpull.MaxWait(time.Minute))
		stage.Pass(time.Second)
		w.NC.Close()
		r := <-got
		_, fetch := w.sub.Fetch(t.Context(), 5)
		_, subscribe := jetpull.Subscribe(t.Context(), w.JS, "S", "C")
		for _, err := range []error{r.err, fetch, subscribe} {
			require.ErrorIs(t, err, jetpull.ErrClosed)
			require.ErrorIs(t, err, nats.ErrConnectionClosed)
		}
		require.Equal(t, time.Second, r.at)
		require.Equal(t, time.Second, w.Elapsed(), "known at once")
	})
}

// Every status that nats-server 2.15 sends to a pull, and the error of the call. The
// status ends the call, or is named at the deadline as the last problem.
func TestEveryStatus(t *testing.T) {
	for _, tt := range []struct {
		code int
		text string
		ends bool // at once
		is   []error
		says string
	}{
		{400, "Bad Request - Priority Group missing", true, []error{jetpull.ErrBadRequest, jetstream.ErrBadRequest}, ""},
		{408, "Interest Expired", false, []error{jetpull.ErrTimeout, nats.ErrTimeout}, ""},
		{409, "Message Size Exceeds MaxBytes", true, []error{jetpull.ErrMaxBytes, jetstream.ErrMaxBytesExceeded}, "raise MaxBytes"},
		{409, "Exceeded MaxRequestExpires of 1s", true, []error{jetpull.ErrLimitExceeded}, "raise the limit"},
		{409, "Exceeded MaxWaiting", false, []error{jetpull.ErrMaxWaiting, jetpull.ErrTimeout}, "MaxWaiting"},
		{409, "Consumer Deleted", true, []error{jetpull.ErrConsumerDeleted, jetstream.ErrConsumerDeleted, nats.ErrConsumerDeleted}, ""},
		{409, "consumer deleted", true, []error{jetpull.ErrConsumerDeleted}, ""},
		{
			409, "Consumer is push based", true,
			[]error{jetpull.ErrNotPull, jetstream.ErrNotPullConsumer, nats.ErrPullSubscribeToPushConsumer},
			"DeliverSubject",
		},
		{409, "Leadership Change", false, []error{
			jetpull.ErrLeadershipChanged, jetstream.ErrConsumerLeadershipChanged,
			nats.ErrConsumerLeadershipChanged,
		}, ""},
		{409, "Server Shutdown", false, []error{jetpull.ErrServerShutdown, jetstream.ErrServerShutdown}, ""},
		{409, "Something Else", false, []error{jetpull.ErrTimeout}, ""},
		{412, "Required Api Level", true, []error{jetpull.ErrBadRequest}, ""},
		{499, "Newer", false, []error{jetpull.ErrTimeout}, ""},
		{503, "", false, []error{jetpull.ErrNoResponders, nats.ErrNoResponders, jetpull.ErrTimeout}, ""},
	} {
		t.Run(fmt.Sprint(tt.code, " ", tt.text), at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.answer(tt.code, tt.text)
			r := <-w.fetch(t.Context(), 3, jetpull.MaxWait(3*time.Second), jetpull.MaxBytes(100))
			require.Equal(t, tt.ends, r.at == 0, "%v", r.at)
			for _, is := range tt.is {
				require.ErrorIs(t, r.err, is)
			}
			require.ErrorContains(t, r.err, tt.says)
			if tt.ends && !errors.Is(r.err, jetpull.ErrLimitExceeded) { // Consume reads the limits, and asks for less
				from := len(w.Pulls())
				require.ErrorIs(t, w.consume(nothing, jetpull.MaxBytes(100)).result(), tt.is[0])
				require.LessOrEqual(t, len(w.Pulls())-from, 2, "Consume ends, too")
			}
			status, ok := errors.AsType[*jetpull.StatusError](r.err)
			require.True(t, ok || tt.code == 408, "%v", r.err)
			if ok {
				require.Equal(t, &jetpull.StatusError{Code: tt.code, Description: tt.text, Subject: "$JS.API.CONSUMER.MSG.NEXT.S.C"},
					&jetpull.StatusError{Code: status.Code, Description: status.Description, Subject: status.Subject})
				require.ErrorContains(t, r.err, fmt.Sprintf("status %d", tt.code))
				require.ErrorContains(t, r.err, status.Subject)
			}
		}))
	}
}

// A StatusError that a program creates, for example for its own test, behaves like one of the server.
func TestStatusErrorsOfPrograms(t *testing.T) {
	for _, tt := range []struct {
		err  jetpull.StatusError
		is   error
		text string
	}{
		{jetpull.StatusError{Code: 503}, jetpull.ErrNoResponders, "jetpull: status 503 no responders"},
		{jetpull.StatusError{Code: 409, Description: "Consumer Deleted"}, jetpull.ErrConsumerDeleted, "jetpull: status 409 Consumer Deleted"},
		{
			jetpull.StatusError{Code: 409, Description: "Exceeded MaxWaiting", Subject: "s"},
			jetpull.ErrMaxWaiting,
			"jetpull: status 409 Exceeded MaxWaiting on s: raise the consumer's MaxWaiting or run fewer clients",
		},
		{jetpull.StatusError{Code: 423, Description: "Nats-Wrong-Pin-Id"}, jetstream.ErrPinIDMismatch, "jetpull: status 423 Nats-Wrong-Pin-Id"},
		{jetpull.StatusError{Code: 100, Description: "Idle Heartbeat"}, nil, "jetpull: status 100 Idle Heartbeat"},
		{jetpull.StatusError{}, jetpull.ErrTimeout, "jetpull: status 0 timeout"},
	} {
		require.Equal(t, tt.text, tt.err.Error())
		require.True(t, tt.is == nil || errors.Is(&tt.err, tt.is), "%v", &tt.err)
	}
}

// The sentinels stand for different conditions. They match neither each other nor
// the errors of nats.go for other conditions.
func TestSentinelsAreDistinct(t *testing.T) {
	all := [][]error{
		{jetpull.ErrTimeout, nats.ErrTimeout},
		{jetpull.ErrNoMessages, jetstream.ErrNoMessages},
		{jetpull.ErrNoResponders, nats.ErrNoResponders},
		{jetpull.ErrConsumerDeleted, jetstream.ErrConsumerDeleted, nats.ErrConsumerDeleted},
		{jetpull.ErrNotPull, jetstream.ErrNotPullConsumer},
		{jetpull.ErrBadRequest, jetstream.ErrBadRequest},
		{jetpull.ErrLimitExceeded},
		{jetpull.ErrMaxWaiting},
		{jetpull.ErrClosed},
		{jetpull.ErrMaxBytes, jetstream.ErrMaxBytesExceeded},
		{jetpull.ErrLeadershipChanged, jetstream.ErrConsumerLeadershipChanged},
		{jetpull.ErrServerShutdown, jetstream.ErrServerShutdown},
		{jetpull.ErrInvalidOption, jetstream.ErrInvalidOption},
		{jetpull.ErrDrainTimeout, nats.ErrDrainTimeout},
	}
	for i, a := range all {
		require.ErrorContains(t, a[0], "jetpull: ")
		for j, b := range all {
			for _, is := range b {
				require.Equal(t, i == j, errors.Is(fmt.Errorf("x: %w", a[0]), is), "%v is %v", a[0], is)
			}
		}
	}
}
