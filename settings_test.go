package jetpull_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// If an option of a call and a default exclude each other, the call's option applies.
func TestCallsOverrideDefaults(t *testing.T) {
	for name, tt := range map[string]struct {
		defaults []jetpull.SubscribeOption
		call     string
		opts     []jetpull.SubscribeOption
		refused  string
	}{
		"a wait for which the heartbeat is too long": {
			[]jetpull.SubscribeOption{jetpull.MaxWait(time.Minute), jetpull.Heartbeat(10 * time.Second)},
			"Next",
			[]jetpull.SubscribeOption{jetpull.MaxWait(time.Second)},
			"Heartbeat",
		},
		"a longer wait": {
			[]jetpull.SubscribeOption{jetpull.MaxWait(time.Minute), jetpull.Heartbeat(10 * time.Second)},
			"Next",
			[]jetpull.SubscribeOption{jetpull.MaxWait(time.Hour)},
			"",
		},
		"NoWait in place of FillBatch": {
			[]jetpull.SubscribeOption{jetpull.FillBatch()},
			"Fetch",
			[]jetpull.SubscribeOption{jetpull.NoWait()},
			"",
		},
		"FillBatch in place of NoWait": {
			[]jetpull.SubscribeOption{jetpull.NoWait()},
			"Fetch",
			[]jetpull.SubscribeOption{jetpull.FillBatch()},
			"",
		},
		"NoWait and Heartbeat as defaults": {
			[]jetpull.SubscribeOption{jetpull.NoWait(), jetpull.Heartbeat(time.Second)},
			"Fetch",
			[]jetpull.SubscribeOption{jetpull.FillBatch(), jetpull.MaxWait(time.Minute)},
			"",
		},
		"Heartbeat is left out with NoWait": {
			[]jetpull.SubscribeOption{jetpull.Heartbeat(time.Second)},
			"Next",
			[]jetpull.SubscribeOption{jetpull.NoWait()},
			"",
		},
		"NoWait and a heartbeat": {nil, "Next", []jetpull.SubscribeOption{jetpull.NoWait(), jetpull.Heartbeat(time.Second)}, "Heartbeat"},
		"a heartbeat where NoWait is the default": {
			[]jetpull.SubscribeOption{jetpull.NoWait()},
			"Next",
			[]jetpull.SubscribeOption{jetpull.Heartbeat(time.Second)},
			"NoWait",
		},
		"a heartbeat of Consume there": {
			[]jetpull.SubscribeOption{jetpull.NoWait()},
			"Consume",
			[]jetpull.SubscribeOption{jetpull.Heartbeat(time.Second)},
			"",
		},
		"less prefetch than handlers": {
			[]jetpull.SubscribeOption{jetpull.Concurrency(8)},
			"Consume",
			[]jetpull.SubscribeOption{jetpull.Prefetch(3)},
			"Prefetch: 3 is below Concurrency 8",
		},
		"more handlers than prefetch": {
			[]jetpull.SubscribeOption{jetpull.Prefetch(3)},
			"Consume",
			[]jetpull.SubscribeOption{jetpull.Concurrency(8)},
			"Prefetch: 3 is below Concurrency 8",
		},
		"prefetch of Messages": {
			[]jetpull.SubscribeOption{jetpull.Concurrency(8)},
			"Messages",
			[]jetpull.SubscribeOption{jetpull.Prefetch(3)},
			"",
		},
		"delays as a default, and no retry": {defaults(jetpull.RetryDelays(time.Second)), "Consume", defaults(jetpull.MaxAttempts(1)), ""},
		"delays of a dead letter": {
			nil, "Consume",
			defaults(jetpull.RetryDelays(time.Second), jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.a")), "",
		},
		"a window that a default makes full": {defaults(jetpull.DrainBuffered()), "Consume", defaults(jetpull.Prefetch(1)), ""},
		"DrainBuffered for what waits for its key": {
			nil, "Consume",
			defaults(jetpull.DrainBuffered(), jetpull.OrderedBy((*jetpull.Msg).Subject), jetpull.Prefetch(2), jetpull.Concurrency(2)), "",
		},
		"a dead letter and no attempts": {
			[]jetpull.SubscribeOption{jetpull.DeadLetter("dead.a")},
			"Consume", nil,
			`DeadLetter: "dead.a" needs MaxAttempts`,
		},
		"a dead letter and attempts of the call": {
			[]jetpull.SubscribeOption{jetpull.DeadLetter("dead.a")},
			"Consume",
			[]jetpull.SubscribeOption{jetpull.MaxAttempts(2)},
			"",
		},
		"a dead letter and Next": {[]jetpull.SubscribeOption{jetpull.DeadLetter("dead.a")}, "Next", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			onPolicies(t, func(t *testing.T, w *world) {
				sub := w.subscribe(w.JS, tt.defaults...)
				err := calls[tt.call](w, sub, "C", tt.opts...)
				if tt.refused != "" {
					require.ErrorIs(t, err, jetpull.ErrInvalidOption)
					require.ErrorContains(t, err, tt.refused)
				} else if !errors.Is(err, context.Canceled) {
					require.NoError(t, err)
				}
				require.Empty(t, w.Acks("+ACK"))
			})
		})
	}
}

func TestArgumentsOfCalls(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		var none context.Context
		w.Peer.ResetOps()
		errs := map[string]error{"handler": w.sub.Consume(t.Context(), nil), "ctx": w.sub.Consume(none, nothing)}
		for _, n := range []int{0, -1, math.MinInt, math.MaxInt32 + 1} {
			_, errs[fmt.Sprintf("n: %d", n)] = w.sub.Fetch(t.Context(), n)
		}
		for says, err := range errs {
			require.ErrorIs(t, err, jetpull.ErrInvalidOption)
			require.ErrorContains(t, err, says)
		}
		_, next := w.sub.Next(none)
		_, fetch := w.sub.Fetch(none, 1)
		_, info := w.sub.Info(none)
		_, subscribe := jetpull.Subscribe(none, w.JS, "S", "C")
		all := []error{
			next, fetch, info, subscribe, w.sub.Close(none), w.sub.Unpin(none), jetpull.Unpin(none, w.JS, "S", "C", "g"),
			jetpull.Unpin(t.Context(), nil, "S", "C", "g"),
		}
		for m, err := range w.sub.Messages(none) {
			require.Nil(t, m)
			all = append(all, err)
		}
		for _, err := range jetpull.Advisories(none, w.JS, "S", "C") {
			all = append(all, err)
		}
		for _, err := range jetpull.Advisories(t.Context(), nil, "S", "C") {
			all = append(all, err)
		}
		require.Len(t, all, 11)
		for _, err := range all {
			require.ErrorIs(t, err, jetpull.ErrInvalidOption)
		}
		require.Empty(t, w.Ops("PUB"), "nothing sent")
		require.Empty(t, w.Ops("SUB"), "nothing subscribed")
	})
}

func TestSubscribeRefuses(t *testing.T) {
	onPolicies(t, func(t *testing.T, w *world) {
		w.foreign(jetstream.ConsumerConfig{Name: "push", DeliverSubject: "d"})
		w.foreign(jetstream.ConsumerConfig{Name: "headers", HeadersOnly: true})
		sub, err := jetpull.Subscribe(t.Context(), w.JS, "S", "headers")
		require.NoError(t, err)
		err = sub.Consume(ended(t), nothing, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.a"))
		require.ErrorIs(t, err, jetpull.ErrInvalidOption)
		require.ErrorContains(t, err, "headers only")
		require.NoError(t, sub.Close(t.Context()))
		// A consumer of nats.go's OrderedConsumer cannot be recognized.
		live := jetstream.ConsumerConfig{
			Name: "live_7", AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: 5 * time.Minute,
		}
		w.foreign(live)
		sub, err = jetpull.Subscribe(t.Context(), w.JS, "S", "live_7")
		require.NoError(t, err)
		require.NoError(t, sub.Close(t.Context()))
		before := w.NC.NumSubscriptions()
		for _, tt := range []struct {
			name, stream, consumer string
			opts                   []jetpull.SubscribeOption
			want                   []error
			says                   string
		}{
			{"no stream", "", "C", nil, []error{jetpull.ErrInvalidOption}, "stream"},
			{"wildcards", "S", "C.*", nil, []error{jetpull.ErrInvalidOption}, "consumer"},
			{"spaces", "a b", "C", nil, []error{jetpull.ErrInvalidOption}, "stream"},
			{"unknown", "S", "other", nil, []error{jetstream.ErrConsumerNotFound}, `"other"`},
			{"push", "S", "push", nil, []error{jetpull.ErrNotPull, jetstream.ErrNotPullConsumer}, "DeliverSubject"},
			{"no group", "S", "overflow", nil, []error{jetpull.ErrInvalidOption}, "Group"},
			{"other group", "S", "overflow", []jetpull.SubscribeOption{jetpull.Group("x")}, []error{jetpull.ErrInvalidOption}, "Group"},
		} {
			sub, err := jetpull.Subscribe(t.Context(), w.JS, tt.stream, tt.consumer, tt.opts...)
			if sub != nil {
				require.NoError(t, sub.Close(t.Context()))
			}
			for _, want := range tt.want {
				require.ErrorIs(t, err, want, tt.name)
			}
			require.ErrorContains(t, err, tt.says, tt.name)
		}
		_, err = jetpull.Subscribe(t.Context(), nil, "S", "C")
		require.ErrorIs(t, err, jetpull.ErrInvalidOption)
		edge, err := jetstream.NewWithDomain(w.NC, "edge")
		require.NoError(t, err)
		_, err = jetpull.Subscribe(t.Context(), edge, "S", "C")
		require.ErrorIs(t, err, jetpull.ErrNoResponders)
		require.ErrorContains(t, err, "$JS.edge.API.")
		w.Peer.Pause(true)
		start := time.Now()
		_, err = jetpull.Subscribe(t.Context(), w.JS, "S", "C")
		require.ErrorIs(t, err, jetpull.ErrTimeout)
		require.Equal(t, 5*time.Second, time.Since(start))
		w.Peer.Pause(false)
		require.Equal(t, before, w.NC.NumSubscriptions(), "no subscription is left")
	})
}

// foreign makes the server answer requests for the info of a consumer that is
// not modelled.
func (w *world) foreign(cfg jetstream.ConsumerConfig) {
	w.Peer.OnRequest("$JS.API.CONSUMER.INFO.S."+cfg.Name, func(p *natstest.Peer, r natstest.Request) {
		p.ReplyJSON(r.Reply, jetstream.ConsumerInfo{Stream: "S", Name: cfg.Name, Config: cfg})
	})
}

// If the context leaves no time for two heartbeats of the option, a pull has the default heartbeat.
func TestAHeartbeatAndAShortDeadline(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		for beat, want := range map[time.Duration]time.Duration{400 * milli: 400 * milli, 10 * second: 200 * milli} {
			c, cancel := context.WithTimeout(t.Context(), second)
			_, err := w.sub.Next(c, jetpull.Heartbeat(beat))
			cancel()
			require.ErrorIs(t, err, jetpull.ErrTimeout)
			pulls := w.Pulls()
			require.Equal(t, want, pulls[len(pulls)-1].Req.Heartbeat)
		}
	})
}

// Each no-wait pull and each long pull carries the terms of its call, and no others.
func TestPullsCarryTheirTerms(t *testing.T) {
	group := jetpull.Group("g")
	for name, tt := range map[string]struct {
		cfg  jetstream.ConsumerConfig
		opts []jetpull.SubscribeOption
		want natstest.PullRequest
	}{
		"max bytes": {jetstream.ConsumerConfig{}, defaults(jetpull.MaxBytes(4096)), natstest.PullRequest{MaxBytes: 4096}},
		"overflow": {
			policies["overflow"], defaults(group, jetpull.MinPending(7), jetpull.MinAckPending(9)),
			natstest.PullRequest{Group: "g", MinPending: 7, MinAckPending: 9},
		},
		"overflow without thresholds": {policies["overflow"], defaults(group), natstest.PullRequest{Group: "g"}},
		"priority":                    {policies["prioritized"], defaults(group, jetpull.Priority(4)), natstest.PullRequest{Group: "g", Priority: 4}},
		"pinned, before the pin":      {policies["pinned"], defaults(group), natstest.PullRequest{Group: "g"}},
	} {
		t.Run(name, at(tt.cfg, func(t *testing.T, w *world) {
			_, err := w.sub.Fetch(t.Context(), 3, jetpull.MaxWait(time.Second))
			require.ErrorIs(t, err, jetpull.ErrTimeout)
			require.NoError(t, w.consume(nothing).stop())
			require.Len(t, w.Pulls(), 3)
			for i, p := range w.Pulls() {
				if i == 2 && tt.want.MaxBytes == 0 {
					p.Req.MaxBytes = 0 // Consume's own bound
				}
				p.Req.Batch, p.Req.Expires, p.Req.Heartbeat, p.Req.NoWait = 0, 0, 0, false
				require.Equal(t, tt.want, p.Req)
			}
		}, tt.opts...))
	}
}
