package jetpull_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/limit"
)

// policies are consumers of stream S, by name, beside the plain one C.
var policies = map[string]jetstream.ConsumerConfig{
	"overflow":    {PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{"g"}},
	"prioritized": {PriorityPolicy: jetstream.PriorityPolicyPrioritized, PriorityGroups: []string{"g"}},
	"pinned":      {PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"g"}},
	"all":         {AckPolicy: jetstream.AckAllPolicy},
	"none":        {AckPolicy: jetstream.AckNonePolicy},
	"limited":     {MaxDeliver: 3},
}

// groups are the options that the consumers of policies require.
func needed(consumer string) []jetpull.SubscribeOption {
	if policies[consumer].PriorityGroups != nil {
		return []jetpull.SubscribeOption{jetpull.Group("g")}
	}
	return nil
}

// opts are options of Consume, fetching those of Fetch, and defaults those of Subscribe.
func opts(o ...jetpull.ConsumeOption) []jetpull.ConsumeOption         { return o }
func fetching(o ...jetpull.FetchOption) []jetpull.FetchOption         { return o }
func defaults(o ...jetpull.SubscribeOption) []jetpull.SubscribeOption { return o }

// as are options as those of a call, which can use them.
func as[O, P jetpull.SubscribeOption](list []P) (of []O) {
	for _, o := range list {
		of = append(of, any(o).(O))
	}
	return of
}

// onPolicies runs a test on a stage that has the consumers of policies too.
func onPolicies(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Model.AddStream("D", "dead.>")
		for name, cfg := range policies {
			cfg.Name = name
			w.Model.AddConsumer("S", cfg)
		}
		test(t, w)
	})
}

// calls are the calls that take options. Each makes its call on a consumer with a
// context that has ended, so that nothing is sent, and returns the error of the
// options.
var calls = map[string]func(w *world, sub *jetpull.Subscription, consumer string, opts ...jetpull.SubscribeOption) error{
	"Next": func(w *world, sub *jetpull.Subscription, _ string, opts ...jetpull.SubscribeOption) error {
		_, err := sub.Next(ended(w.t), as[jetpull.NextOption](opts)...)
		return err
	},
	"Fetch": func(w *world, sub *jetpull.Subscription, _ string, opts ...jetpull.SubscribeOption) error {
		_, err := sub.Fetch(ended(w.t), 10, as[jetpull.FetchOption](opts)...)
		return err
	},
	"Messages": func(w *world, sub *jetpull.Subscription, _ string, opts ...jetpull.SubscribeOption) error {
		ctx, cancel := context.WithCancel(w.t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		for _, err := range sub.Messages(ctx, as[jetpull.MessagesOption](opts)...) {
			return err
		}
		return nil
	},
	"Consume": func(w *world, sub *jetpull.Subscription, _ string, opts ...jetpull.SubscribeOption) error {
		return sub.Consume(ended(w.t), nothing, as[jetpull.ConsumeOption](opts)...)
	},
	"Subscribe": func(w *world, _ *jetpull.Subscription, consumer string, opts ...jetpull.SubscribeOption) error {
		sub, err := jetpull.Subscribe(w.t.Context(), w.JS, "S", consumer, opts...)
		if err == nil {
			err = sub.Close(w.t.Context())
		}
		return err
	},
}

func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// accepts makes a call and reports whether its options were accepted. An error
// must be ErrInvalidOption.
func (w *world) accepts(call, consumer string, opts ...jetpull.SubscribeOption) (bool, error) {
	w.t.Helper()
	sub, err := jetpull.Subscribe(w.t.Context(), w.JS, "S", consumer, needed(consumer)...)
	require.NoError(w.t, err)
	if call == "Subscribe" {
		opts = append(needed(consumer), opts...)
	}
	err = calls[call](w, sub, consumer, opts...)
	require.NoError(w.t, sub.Close(w.t.Context()))
	if err == nil || errors.Is(err, context.Canceled) {
		return true, nil
	}
	require.ErrorIs(w.t, err, jetpull.ErrInvalidOption, "%s of %s", call, consumer)
	require.ErrorIs(w.t, err, jetstream.ErrInvalidOption)
	return false, err
}

// crashes is a bucket that no test uses.
type crashes struct{ jetstream.KeyValue }

// everyOption has a valid value of each option, one at a bound where it has any.
var everyOption = []struct {
	name     string
	option   jetpull.SubscribeOption
	uses     string // the calls that can use it, beside Subscribe; empty: all
	consumer string
	with     []jetpull.SubscribeOption // options that it requires
}{
	{name: "MaxWait", option: jetpull.MaxWait(365 * 24 * time.Hour), uses: "Next, Fetch"},
	{name: "NoWait", option: jetpull.NoWait(), uses: "Next, Fetch"},
	{name: "FillBatch", option: jetpull.FillBatch(), uses: "Fetch"},
	{name: "MaxBytes", option: jetpull.MaxBytes(math.MaxInt32)},
	{name: "Heartbeat", option: jetpull.Heartbeat(time.Millisecond)},
	{name: "Group", option: jetpull.Group("g"), consumer: "overflow"},
	{name: "MinPending", option: jetpull.MinPending(math.MaxInt64), consumer: "overflow"},
	{name: "MinAckPending", option: jetpull.MinAckPending(1), consumer: "overflow"},
	{name: "Priority", option: jetpull.Priority(9), consumer: "prioritized"},
	{name: "OnPin", option: jetpull.OnPin(func(jetpull.PinEvent) {}), uses: "none", consumer: "pinned"},
	{name: "OnUnpin", option: jetpull.OnUnpin(func(jetpull.PinEvent) {}), uses: "none", consumer: "pinned"},
	{name: "Concurrency", option: jetpull.Concurrency(1792), uses: "Consume"},
	{name: "OrderedBy", option: jetpull.OrderedBy((*jetpull.Msg).Subject), uses: "Consume"},
	{name: "Prefetch", option: jetpull.Prefetch(1792), uses: "Messages, Consume"},
	{name: "PrefetchBytes", option: jetpull.PrefetchBytes(700), uses: "Messages, Consume"},
	{name: "KeepAlive", option: jetpull.KeepAlive(false), uses: "Messages, Consume"},
	{name: "RetryDelays", option: jetpull.RetryDelays(0, time.Minute), uses: "Consume"},
	{name: "MaxAttempts", option: jetpull.MaxAttempts(5), uses: "Consume"},
	{name: "MaxCrashes", option: jetpull.MaxCrashes(1, crashes{}), uses: "Consume"},
	{name: "ExpiresAt", option: jetpull.ExpiresAt(func(*jetpull.Msg) time.Time { return time.Time{} }), uses: "Consume"},
	{name: "DeadLetter", option: jetpull.DeadLetter("dead.a"), uses: "Consume", with: defaults(jetpull.MaxAttempts(5))},
	{name: "Limited", option: jetpull.Limited(&limit.Limiter{}, (*jetpull.Msg).Subject), uses: "Consume"},
	{name: "Named", option: jetpull.Named("loaders-2"), uses: "Consume"},
	{name: "HandlerTimeout", option: jetpull.HandlerTimeout(time.Minute), uses: "Consume"},
	{name: "ManualAck", option: jetpull.ManualAck(), uses: "Consume"},
	{name: "StopAfter", option: jetpull.StopAfter(1), uses: "Messages, Consume"},
	{name: "DrainTimeout", option: jetpull.DrainTimeout(0), uses: "Consume"},
	{name: "DrainBuffered", option: jetpull.DrainBuffered(), uses: "Consume"},
	{name: "OnError", option: jetpull.OnError(func(error) {}), uses: "Consume"},
	{name: "OnEvent", option: jetpull.OnEvent(func(jetpull.Event) {}), uses: "Consume"},
	{name: "OnStart", option: jetpull.OnStart(func() {}), uses: "Consume"},
	{name: "Use", option: jetpull.Use(func(h jetpull.Handler) jetpull.Handler { return h }), uses: "Consume"},
	{name: "AwaitConsumer", option: jetpull.AwaitConsumer(), uses: "Messages, Consume"},
	{name: "Logger", option: jetpull.Logger(slog.New(slog.DiscardHandler)), uses: "Messages, Consume"},
}

// A call takes the options that it can use: TestOptionsCompileWhereTheyWork of module test shows that the others do not compile. As a
// default an option is skipped by calls that cannot use it.
func TestEveryOptionWithEveryCall(t *testing.T) {
	onPolicies(t, func(t *testing.T, w *world) {
		for _, o := range everyOption {
			consumer := cmp.Or(o.consumer, "C")
			for call := range calls {
				if call == "Subscribe" || o.uses == "" || strings.Contains(o.uses, call) {
					_, err := w.accepts(call, consumer, append(slices.Clone(o.with), o.option)...)
					require.NoError(t, err, "%s given to %s", o.name, call)
				}
			}
			sub, err := jetpull.Subscribe(t.Context(), w.JS, "S", consumer, append(append(needed(consumer), o.with...), o.option)...)
			require.NoError(t, err)
			for call, try := range calls {
				if err := try(w, sub, consumer, needed(consumer)...); call != "Subscribe" && !errors.Is(err, context.Canceled) {
					require.NoError(t, err, "%s as a default of %s", o.name, call)
				}
			}
			require.NoError(t, sub.Close(t.Context()))
		}
	})
}

// refusals are options that every call refuses, each for itself. If with is set it is
// given first.
var refusals = []struct {
	call, consumer, name string
	says                 []string
	with                 []jetpull.SubscribeOption
	opts                 []jetpull.SubscribeOption
}{
	{call: "Fetch", name: "MaxWait", opts: []jetpull.SubscribeOption{
		jetpull.MaxWait(0), jetpull.MaxWait(-1), jetpull.MaxWait(time.Millisecond - 1), jetpull.MaxWait(math.MaxInt64),
		jetpull.MaxWait(365*24*time.Hour + 1),
	}},
	{call: "Fetch", name: "Heartbeat", opts: []jetpull.SubscribeOption{
		jetpull.Heartbeat(0), jetpull.Heartbeat(time.Microsecond),
		jetpull.Heartbeat(math.MaxInt64),
	}},
	{
		call: "Fetch", name: "Heartbeat", with: []jetpull.SubscribeOption{jetpull.MaxWait(2 * time.Second)},
		opts: []jetpull.SubscribeOption{jetpull.Heartbeat(time.Second)},
	},
	{call: "Fetch", name: "MaxBytes", opts: []jetpull.SubscribeOption{jetpull.MaxBytes(0), jetpull.MaxBytes(math.MaxInt32 + 1)}},
	{call: "Fetch", name: "FillBatch", with: []jetpull.SubscribeOption{jetpull.NoWait()}, opts: []jetpull.SubscribeOption{jetpull.FillBatch()}},
	{call: "Fetch", name: "Group", opts: []jetpull.SubscribeOption{jetpull.Group("g")}, says: []string{`"C"`, create}},
	{
		call: "Fetch", consumer: "overflow", name: "Group", opts: []jetpull.SubscribeOption{jetpull.Group(""), jetpull.Group("other")},
		says: []string{`["g"]`},
	},
	{call: "Fetch", consumer: "overflow", name: "Group", opts: []jetpull.SubscribeOption{
		jetpull.Group("a b"), jetpull.Group("a.b"),
		jetpull.Group("longer than sixteen"),
	}},
	{call: "Fetch", consumer: "overflow", name: "MinPending", opts: []jetpull.SubscribeOption{jetpull.MinPending(0), jetpull.MinPending(-5)}},
	{call: "Fetch", name: "MinPending", opts: []jetpull.SubscribeOption{jetpull.MinPending(5)}},
	{call: "Fetch", consumer: "prioritized", name: "MinPending", opts: []jetpull.SubscribeOption{jetpull.MinPending(5)}},
	{call: "Fetch", consumer: "overflow", name: "MinAckPending", opts: []jetpull.SubscribeOption{jetpull.MinAckPending(0)}},
	{call: "Fetch", consumer: "prioritized", name: "MinAckPending", opts: []jetpull.SubscribeOption{jetpull.MinAckPending(1)}},
	{call: "Fetch", consumer: "prioritized", name: "Priority", opts: []jetpull.SubscribeOption{jetpull.Priority(-1), jetpull.Priority(10)}},
	{call: "Fetch", consumer: "overflow", name: "Priority", opts: []jetpull.SubscribeOption{jetpull.Priority(0)}},
	{call: "Fetch", name: "Priority", opts: []jetpull.SubscribeOption{jetpull.Priority(0)}},
	{call: "Consume", name: "Heartbeat", opts: []jetpull.SubscribeOption{jetpull.Heartbeat(15*time.Second + 1)}, says: []string{onlyHere}},
	{call: "Consume", name: "Concurrency", opts: []jetpull.SubscribeOption{
		jetpull.Concurrency(0), jetpull.Concurrency(-1),
		jetpull.Concurrency(math.MaxInt),
	}},
	{call: "Consume", name: "OrderedBy", opts: []jetpull.SubscribeOption{jetpull.OrderedBy(nil)}, says: []string{"nil", leave}},
	{call: "Consume", name: "Prefetch", opts: []jetpull.SubscribeOption{jetpull.Prefetch(0), jetpull.Prefetch(1793)}},
	{
		call: "Consume", name: "Prefetch: 3 is below Concurrency 8", with: []jetpull.SubscribeOption{jetpull.Concurrency(8)},
		opts: []jetpull.SubscribeOption{jetpull.Prefetch(3)},
	},
	{call: "Consume", name: "PrefetchBytes", opts: []jetpull.SubscribeOption{jetpull.PrefetchBytes(0), jetpull.PrefetchBytes(math.MaxInt)}},
	{call: "Consume", name: "RetryDelays", opts: []jetpull.SubscribeOption{jetpull.RetryDelays(time.Second, -1), jetpull.RetryDelays(math.MaxInt64)}},
	{call: "Consume", name: "RetryDelays", opts: []jetpull.SubscribeOption{jetpull.RetryDelays()}, says: []string{"no entries", leave}},
	{
		call: "Consume", name: "RetryDelays", with: defaults(jetpull.MaxAttempts(1)), opts: defaults(jetpull.RetryDelays(time.Second)),
		says: []string{"MaxAttempts 1", "[1s]"},
	},
	{
		call: "Consume", name: "DrainBuffered", with: defaults(jetpull.Prefetch(1)), opts: defaults(jetpull.DrainBuffered()),
		says: []string{"Prefetch 1", "Concurrency 1"},
	},
	{
		call: "Consume", name: "DrainBuffered", with: defaults(jetpull.Prefetch(4), jetpull.Concurrency(4)), opts: defaults(jetpull.DrainBuffered()),
		says: []string{"Prefetch 4"},
	},
	{
		call: "Consume", name: "DrainBuffered", with: defaults(jetpull.DrainTimeout(0)), opts: defaults(jetpull.DrainBuffered()),
		says: []string{"DrainTimeout 0"},
	},
	{call: "Consume", name: "MaxAttempts", opts: []jetpull.SubscribeOption{jetpull.MaxAttempts(0)}},
	{call: "Consume", consumer: "limited", name: "MaxAttempts", opts: []jetpull.SubscribeOption{jetpull.MaxAttempts(4)}, says: []string{"MaxDeliver"}},
	{call: "Consume", name: "MaxCrashes", opts: []jetpull.SubscribeOption{jetpull.MaxCrashes(0, crashes{}), jetpull.MaxCrashes(1, nil)}},
	{
		call: "Consume", consumer: "limited", name: "MaxCrashes", opts: []jetpull.SubscribeOption{jetpull.MaxCrashes(2, crashes{})},
		says: []string{"MaxDeliver of 4"},
	},
	{
		call: "Consume", consumer: "none", name: "MaxCrashes", opts: []jetpull.SubscribeOption{jetpull.MaxCrashes(2, crashes{})},
		says: []string{"2", leave, create},
	},
	{call: "Consume", name: "ExpiresAt", opts: []jetpull.SubscribeOption{jetpull.ExpiresAt(nil)}},
	{
		call: "Consume", name: "Limited",
		opts: []jetpull.SubscribeOption{jetpull.Limited(nil, (*jetpull.Msg).Subject), jetpull.Limited(&limit.Limiter{}, nil)},
	},
	{call: "Consume", name: "Named", opts: []jetpull.SubscribeOption{jetpull.Named(""), jetpull.Named("a b"), jetpull.Named("a.b")}, says: []string{"letters"}},
	{call: "Consume", name: "DeadLetter", opts: []jetpull.SubscribeOption{jetpull.DeadLetter("dead.a")}, says: []string{"needs MaxAttempts", onlyHere}},
	{
		call: "Consume", name: "DeadLetter", with: []jetpull.SubscribeOption{jetpull.MaxAttempts(1)},
		opts: []jetpull.SubscribeOption{jetpull.DeadLetter(""), jetpull.DeadLetter("dead.*")},
	},
	{call: "Consume", name: "DrainTimeout", opts: []jetpull.SubscribeOption{jetpull.DrainTimeout(-1), jetpull.DrainTimeout(math.MaxInt64)}},
	{call: "Messages", name: "StopAfter", opts: []jetpull.SubscribeOption{jetpull.StopAfter(0), jetpull.StopAfter(math.MaxInt)}, says: []string{leave}},
	{
		call: "Consume", consumer: "none", name: "ManualAck", opts: []jetpull.SubscribeOption{jetpull.ManualAck()},
		says: []string{`"none"`, leave, create},
	},
	{call: "Consume", name: "HandlerTimeout", opts: []jetpull.SubscribeOption{jetpull.HandlerTimeout(0), jetpull.HandlerTimeout(-time.Second)}},
	{call: "Consume", name: "OnError", opts: []jetpull.SubscribeOption{jetpull.OnError(nil)}},
	{call: "Consume", name: "Logger", opts: []jetpull.SubscribeOption{jetpull.Logger(nil)}},
	{
		call: "Consume", consumer: "none", name: "KeepAlive", opts: []jetpull.SubscribeOption{jetpull.KeepAlive(true), jetpull.KeepAlive(false)},
		says: []string{`"none"`, leave, create},
	},
	{
		call: "Consume", consumer: "none", name: "RetryDelays", opts: []jetpull.SubscribeOption{jetpull.RetryDelays(time.Second)},
		says: []string{"[1s]", leave, create},
	},
	{
		call: "Consume", consumer: "none", name: "MaxAttempts", opts: []jetpull.SubscribeOption{jetpull.MaxAttempts(3)},
		says: []string{"3", leave, create},
	},
	{
		call: "Subscribe", consumer: "none", name: "DeadLetter", opts: []jetpull.SubscribeOption{jetpull.DeadLetter("dead.a")},
		says: []string{"dead.a", leave, create},
	},
	{
		call: "Subscribe", name: "OnPin", opts: []jetpull.SubscribeOption{jetpull.OnPin(onPin)},
		says: []string{`"C"`, "policy none", "pinned_client", leave},
	},
	{call: "Subscribe", name: "OnUnpin", opts: []jetpull.SubscribeOption{jetpull.OnUnpin(onPin)}, says: []string{"pinned_client", leave}},
	{
		call: "Subscribe", consumer: "overflow", name: "OnPin", opts: []jetpull.SubscribeOption{jetpull.OnPin(onPin)},
		says: []string{"policy overflow", "pinned_client"},
	},
	{call: "Subscribe", consumer: "pinned", name: "OnPin", opts: []jetpull.SubscribeOption{jetpull.OnPin(nil)}, says: []string{"nil", leave}},
	{call: "Subscribe", consumer: "pinned", name: "OnUnpin", opts: []jetpull.SubscribeOption{jetpull.OnUnpin(nil)}, says: []string{"nil", leave}},
}

const (
	leave, create = "leave the option out", "create the consumer"
	onlyHere      = "" // accepted as a default
)

func onPin(jetpull.PinEvent) {}

func TestOptionsThatAreRefused(t *testing.T) {
	onPolicies(t, func(t *testing.T, w *world) {
		for _, tt := range refusals {
			if tt.consumer == "" {
				tt.consumer = "C"
			}
			for _, o := range tt.opts {
				for _, call := range []string{tt.call, "Subscribe"} {
					if call != tt.call && slices.Contains(tt.says, onlyHere) {
						continue
					}
					ok, err := w.accepts(call, tt.consumer, append(slices.Clone(tt.with), o)...)
					require.False(t, ok, "%s of %s on %s", tt.name, call, tt.consumer)
					require.ErrorContains(t, err, "invalid option: "+tt.name)
					for _, text := range tt.says {
						require.ErrorContains(t, err, text)
					}
				}
			}
		}
		require.Empty(t, w.Pulls(), "nothing was pulled")
	})
}

// A nil option is refused like an invalid one, by the call that gets it.
func TestNilOptionsAreRefused(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		m := w.take(1)[0]
		w.Peer.ResetOps()
		_, next := w.sub.Next(t.Context(), nil)
		_, fetch := w.sub.Fetch(t.Context(), 2, jetpull.NoWait(), nil)
		_, ackNext := m.AckNext(t.Context(), nil)
		_, subscribe := jetpull.Subscribe(t.Context(), w.JS, "S", "C", nil)
		errs := map[string]error{
			"option 1 of Next": errors.Join(next, ackNext), "option 2 of Fetch": fetch, "option 1 of Subscribe": subscribe,
			"option 1 of Consume": w.sub.Consume(t.Context(), nothing, nil),
		}
		for _, err := range w.sub.Messages(t.Context(), nil) {
			errs["option 1 of Messages"] = err
		}
		require.Len(t, errs, 5)
		for says, err := range errs {
			require.ErrorIs(t, err, jetpull.ErrInvalidOption)
			require.ErrorContains(t, err, says+" is nil; leave it out")
		}
		require.Error(t, ackNext)
		require.Empty(t, w.Acks("+ACK"))
		require.Empty(t, w.Pulls()[1:], "nothing was pulled")
	})
}
