package jetpull_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
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

// groups are the options that the consumers of policies need.
func needed(consumer string) []jetpull.Option {
	if policies[consumer].PriorityGroups != nil {
		return []jetpull.Option{jetpull.Group("g")}
	}
	return nil
}

// opts is a list of options.
func opts(o ...jetpull.Option) []jetpull.Option { return o }

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

// calls are what options are given to. Each makes its call on a consumer with a
// context that has ended, so that nothing is sent, and returns what was wrong
// with the options.
var calls = map[string]func(w *world, sub *jetpull.Subscription, consumer string, opts ...jetpull.Option) error{
	"Next": func(w *world, sub *jetpull.Subscription, _ string, opts ...jetpull.Option) error {
		_, err := sub.Next(ended(w.t), opts...)
		return err
	},
	"Fetch": func(w *world, sub *jetpull.Subscription, _ string, opts ...jetpull.Option) error {
		_, err := sub.Fetch(ended(w.t), 10, opts...)
		return err
	},
	"Messages": func(w *world, sub *jetpull.Subscription, _ string, opts ...jetpull.Option) error {
		ctx, cancel := context.WithCancel(w.t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		for _, err := range sub.Messages(ctx, opts...) {
			return err
		}
		return nil
	},
	"Consume": func(w *world, sub *jetpull.Subscription, _ string, opts ...jetpull.Option) error {
		return sub.Consume(ended(w.t), nothing, opts...)
	},
	"Subscribe": func(w *world, _ *jetpull.Subscription, consumer string, opts ...jetpull.Option) error {
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

// accepts makes a call and reports whether its options were fine. The error
// must be ErrInvalidOption.
func (w *world) accepts(call, consumer string, opts ...jetpull.Option) (bool, error) {
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

// everyOption has a valid value of each option, one at a bound where it has any, and the calls that can use it.
var everyOption = []struct {
	name     string
	option   jetpull.Option
	uses     []string // nil: all
	consumer string
	with     []jetpull.Option // without which it is refused
}{
	{name: "MaxWait", option: jetpull.MaxWait(365 * 24 * time.Hour), uses: []string{"Next", "Fetch"}},
	{name: "NoWait", option: jetpull.NoWait(), uses: []string{"Next", "Fetch"}},
	{name: "FillBatch", option: jetpull.FillBatch(), uses: []string{"Fetch"}},
	{name: "MaxBytes", option: jetpull.MaxBytes(math.MaxInt32)},
	{name: "Heartbeat", option: jetpull.Heartbeat(time.Millisecond)},
	{name: "Group", option: jetpull.Group("g"), consumer: "overflow"},
	{name: "MinPending", option: jetpull.MinPending(math.MaxInt64), consumer: "overflow"},
	{name: "MinAckPending", option: jetpull.MinAckPending(1), consumer: "overflow"},
	{name: "Priority", option: jetpull.Priority(9), consumer: "prioritized"},
	{name: "OnPin", option: jetpull.OnPin(func(jetpull.PinEvent) {}), uses: []string{}, consumer: "pinned"},
	{name: "OnUnpin", option: jetpull.OnUnpin(func(jetpull.PinEvent) {}), uses: []string{}, consumer: "pinned"},
	{name: "Concurrency", option: jetpull.Concurrency(1792), uses: []string{"Consume"}},
	{name: "OrderedBy", option: jetpull.OrderedBy((*jetpull.Msg).Subject), uses: []string{"Consume"}},
	{name: "Prefetch", option: jetpull.Prefetch(1792), uses: []string{"Messages", "Consume"}},
	{name: "PrefetchBytes", option: jetpull.PrefetchBytes(700), uses: []string{"Messages", "Consume"}},
	{name: "KeepAlive", option: jetpull.KeepAlive(false), uses: []string{"Messages", "Consume"}},
	{name: "RetryDelays", option: jetpull.RetryDelays(0, time.Minute), uses: []string{"Consume"}},
	{name: "MaxAttempts", option: jetpull.MaxAttempts(5), uses: []string{"Consume"}},
	{name: "DeadLetter", option: jetpull.DeadLetter("dead.a"), uses: []string{"Consume"}, with: []jetpull.Option{jetpull.MaxAttempts(5)}},
	{name: "HandlerTimeout", option: jetpull.HandlerTimeout(time.Minute), uses: []string{"Consume"}},
	{name: "ManualAck", option: jetpull.ManualAck(), uses: []string{"Consume"}},
	{name: "StopAfter", option: jetpull.StopAfter(1), uses: []string{"Messages", "Consume"}},
	{name: "DrainTimeout", option: jetpull.DrainTimeout(0), uses: []string{"Consume"}},
	{name: "OnError", option: jetpull.OnError(func(error) {}), uses: []string{"Consume"}},
	{name: "AwaitConsumer", option: jetpull.AwaitConsumer(), uses: []string{"Messages", "Consume"}},
	{name: "Logger", option: jetpull.Logger(slog.New(slog.DiscardHandler)), uses: []string{"Messages", "Consume"}},
}

func TestEveryOptionWithEveryCall(t *testing.T) {
	onPolicies(t, func(t *testing.T, w *world) {
		for _, o := range everyOption {
			consumer := o.consumer
			if consumer == "" {
				consumer = "C"
			}
			for call := range calls {
				fits := call == "Subscribe" || o.uses == nil || slices.Contains(o.uses, call)
				var with []jetpull.Option
				if fits {
					with = o.with
				}
				ok, err := w.accepts(call, consumer, append(slices.Clone(with), o.option)...)
				require.Equal(t, fits, ok, "%s given to %s: %v", o.name, call, err)
				if !fits {
					require.ErrorContains(t, err, o.name)
					require.ErrorContains(t, err, call)
				}
			}
			// As a default it is skipped by a call that cannot use it.
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
	with                 []jetpull.Option
	opts                 []jetpull.Option
}{
	{call: "Fetch", name: "MaxWait", opts: []jetpull.Option{
		jetpull.MaxWait(0), jetpull.MaxWait(-1), jetpull.MaxWait(time.Millisecond - 1), jetpull.MaxWait(math.MaxInt64), jetpull.MaxWait(365*24*time.Hour + 1),
	}},
	{call: "Fetch", name: "Heartbeat", opts: []jetpull.Option{jetpull.Heartbeat(0), jetpull.Heartbeat(time.Microsecond), jetpull.Heartbeat(math.MaxInt64)}},
	{call: "Fetch", name: "Heartbeat", with: []jetpull.Option{jetpull.MaxWait(2 * time.Second)}, opts: []jetpull.Option{jetpull.Heartbeat(time.Second)}},
	{call: "Fetch", name: "MaxBytes", opts: []jetpull.Option{jetpull.MaxBytes(0), jetpull.MaxBytes(math.MaxInt32 + 1)}},
	{call: "Fetch", name: "FillBatch", with: []jetpull.Option{jetpull.NoWait()}, opts: []jetpull.Option{jetpull.FillBatch()}},
	{call: "Fetch", name: "Option", opts: []jetpull.Option{{}}},
	{call: "Fetch", name: "Group", opts: []jetpull.Option{jetpull.Group("g")}, says: []string{`"C"`, create}},
	{call: "Fetch", consumer: "overflow", name: "Group", opts: []jetpull.Option{jetpull.Group(""), jetpull.Group("other")}, says: []string{`["g"]`}},
	{call: "Fetch", consumer: "overflow", name: "Group", opts: []jetpull.Option{jetpull.Group("a b"), jetpull.Group("a.b"), jetpull.Group("longer than sixteen")}},
	{call: "Fetch", consumer: "overflow", name: "MinPending", opts: []jetpull.Option{jetpull.MinPending(0), jetpull.MinPending(-5)}},
	{call: "Fetch", name: "MinPending", opts: []jetpull.Option{jetpull.MinPending(5)}},
	{call: "Fetch", consumer: "prioritized", name: "MinPending", opts: []jetpull.Option{jetpull.MinPending(5)}},
	{call: "Fetch", consumer: "overflow", name: "MinAckPending", opts: []jetpull.Option{jetpull.MinAckPending(0)}},
	{call: "Fetch", consumer: "prioritized", name: "MinAckPending", opts: []jetpull.Option{jetpull.MinAckPending(1)}},
	{call: "Fetch", consumer: "prioritized", name: "Priority", opts: []jetpull.Option{jetpull.Priority(-1), jetpull.Priority(10)}},
	{call: "Fetch", consumer: "overflow", name: "Priority", opts: []jetpull.Option{jetpull.Priority(0)}},
	{call: "Fetch", name: "Priority", opts: []jetpull.Option{jetpull.Priority(0)}},
	{call: "Consume", name: "Heartbeat", opts: []jetpull.Option{jetpull.Heartbeat(15*time.Second + 1)}, says: []string{onlyHere}},
	{call: "Consume", name: "Concurrency", opts: []jetpull.Option{jetpull.Concurrency(0), jetpull.Concurrency(-1), jetpull.Concurrency(math.MaxInt)}},
	{call: "Consume", name: "OrderedBy", opts: []jetpull.Option{jetpull.OrderedBy(nil)}, says: []string{"nil", leave}},
	{call: "Consume", name: "Prefetch", opts: []jetpull.Option{jetpull.Prefetch(0), jetpull.Prefetch(1793)}},
	{call: "Consume", name: "Prefetch: 3 is below Concurrency 8", with: []jetpull.Option{jetpull.Concurrency(8)}, opts: []jetpull.Option{jetpull.Prefetch(3)}},
	{call: "Consume", name: "PrefetchBytes", opts: []jetpull.Option{jetpull.PrefetchBytes(0), jetpull.PrefetchBytes(math.MaxInt)}},
	{call: "Consume", name: "RetryDelays", opts: []jetpull.Option{jetpull.RetryDelays(time.Second, -1), jetpull.RetryDelays(math.MaxInt64)}},
	{call: "Consume", name: "RetryDelays", opts: []jetpull.Option{jetpull.RetryDelays()}, says: []string{"no entries", leave}},
	{call: "Consume", name: "MaxAttempts", opts: []jetpull.Option{jetpull.MaxAttempts(0)}},
	{call: "Consume", consumer: "limited", name: "MaxAttempts", opts: []jetpull.Option{jetpull.MaxAttempts(4)}, says: []string{"MaxDeliver"}},
	{call: "Consume", name: "DeadLetter", opts: []jetpull.Option{jetpull.DeadLetter("dead.a")}, says: []string{"needs MaxAttempts", onlyHere}},
	{call: "Consume", name: "DeadLetter", with: []jetpull.Option{jetpull.MaxAttempts(1)}, opts: []jetpull.Option{jetpull.DeadLetter(""), jetpull.DeadLetter("dead.*")}},
	{call: "Consume", name: "DrainTimeout", opts: []jetpull.Option{jetpull.DrainTimeout(-1), jetpull.DrainTimeout(math.MaxInt64)}},
	{call: "Messages", name: "StopAfter", opts: []jetpull.Option{jetpull.StopAfter(0), jetpull.StopAfter(math.MaxInt)}, says: []string{leave}},
	{call: "Consume", consumer: "none", name: "ManualAck", opts: []jetpull.Option{jetpull.ManualAck()}, says: []string{`"none"`, leave, create}},
	{call: "Consume", name: "HandlerTimeout", opts: []jetpull.Option{jetpull.HandlerTimeout(0), jetpull.HandlerTimeout(-time.Second)}},
	{call: "Consume", name: "OnError", opts: []jetpull.Option{jetpull.OnError(nil)}},
	{call: "Consume", name: "Logger", opts: []jetpull.Option{jetpull.Logger(nil)}},
	{call: "Consume", consumer: "none", name: "KeepAlive", opts: []jetpull.Option{jetpull.KeepAlive(true), jetpull.KeepAlive(false)}, says: []string{`"none"`, leave, create}},
	{call: "Consume", consumer: "none", name: "RetryDelays", opts: []jetpull.Option{jetpull.RetryDelays(time.Second)}, says: []string{"[1s]", leave, create}},
	{call: "Consume", consumer: "none", name: "MaxAttempts", opts: []jetpull.Option{jetpull.MaxAttempts(3)}, says: []string{"3", leave, create}},
	{call: "Subscribe", consumer: "none", name: "DeadLetter", opts: []jetpull.Option{jetpull.DeadLetter("dead.a")}, says: []string{"dead.a", leave, create}},
	{call: "Subscribe", name: "OnPin", opts: []jetpull.Option{jetpull.OnPin(onPin)}, says: []string{`"C"`, "policy none", "pinned_client", leave}},
	{call: "Subscribe", name: "OnUnpin", opts: []jetpull.Option{jetpull.OnUnpin(onPin)}, says: []string{"pinned_client", leave}},
	{call: "Subscribe", consumer: "overflow", name: "OnPin", opts: []jetpull.Option{jetpull.OnPin(onPin)}, says: []string{"policy overflow", "pinned_client"}},
	{call: "Subscribe", consumer: "pinned", name: "OnPin", opts: []jetpull.Option{jetpull.OnPin(nil)}, says: []string{"nil", leave}},
	{call: "Subscribe", consumer: "pinned", name: "OnUnpin", opts: []jetpull.Option{jetpull.OnUnpin(nil)}, says: []string{"nil", leave}},
}

const (
	leave, create = "leave the option out", "create the consumer"
	onlyHere      = "" // it is no mistake as a default
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

// Options of a call and defaults that exclude each other: the call's count.
func TestCallsOverrideDefaults(t *testing.T) {
	for name, tt := range map[string]struct {
		defaults []jetpull.Option
		call     string
		opts     []jetpull.Option
		refused  string
	}{
		"a wait for which the heartbeat is too long": {[]jetpull.Option{jetpull.MaxWait(time.Minute), jetpull.Heartbeat(10 * time.Second)}, "Next", []jetpull.Option{jetpull.MaxWait(time.Second)}, "Heartbeat"},
		"a longer wait":                           {[]jetpull.Option{jetpull.MaxWait(time.Minute), jetpull.Heartbeat(10 * time.Second)}, "Next", []jetpull.Option{jetpull.MaxWait(time.Hour)}, ""},
		"NoWait in place of FillBatch":            {[]jetpull.Option{jetpull.FillBatch()}, "Fetch", []jetpull.Option{jetpull.NoWait()}, ""},
		"FillBatch in place of NoWait":            {[]jetpull.Option{jetpull.NoWait()}, "Fetch", []jetpull.Option{jetpull.FillBatch()}, ""},
		"NoWait and Heartbeat as defaults":        {[]jetpull.Option{jetpull.NoWait(), jetpull.Heartbeat(time.Second)}, "Fetch", []jetpull.Option{jetpull.FillBatch(), jetpull.MaxWait(time.Minute)}, ""},
		"Heartbeat is left out with NoWait":       {[]jetpull.Option{jetpull.Heartbeat(time.Second)}, "Next", []jetpull.Option{jetpull.NoWait()}, ""},
		"NoWait and a heartbeat":                  {nil, "Next", []jetpull.Option{jetpull.NoWait(), jetpull.Heartbeat(time.Second)}, "Heartbeat"},
		"a heartbeat where NoWait is the default": {[]jetpull.Option{jetpull.NoWait()}, "Next", []jetpull.Option{jetpull.Heartbeat(time.Second)}, "NoWait"},
		"a heartbeat of Consume there":            {[]jetpull.Option{jetpull.NoWait()}, "Consume", []jetpull.Option{jetpull.Heartbeat(time.Second)}, ""},
		"less prefetch than handlers":             {[]jetpull.Option{jetpull.Concurrency(8)}, "Consume", []jetpull.Option{jetpull.Prefetch(3)}, "Prefetch: 3 is below Concurrency 8"},
		"more handlers than prefetch":             {[]jetpull.Option{jetpull.Prefetch(3)}, "Consume", []jetpull.Option{jetpull.Concurrency(8)}, "Prefetch: 3 is below Concurrency 8"},
		"prefetch of Messages":                    {[]jetpull.Option{jetpull.Concurrency(8)}, "Messages", []jetpull.Option{jetpull.Prefetch(3)}, ""},
		"a dead letter and no attempts":           {[]jetpull.Option{jetpull.DeadLetter("dead.a")}, "Consume", nil, `DeadLetter: "dead.a" needs MaxAttempts`},
		"a dead letter and attempts of the call":  {[]jetpull.Option{jetpull.DeadLetter("dead.a")}, "Consume", []jetpull.Option{jetpull.MaxAttempts(2)}, ""},
		"a dead letter and Next":                  {[]jetpull.Option{jetpull.DeadLetter("dead.a")}, "Next", nil, ""},
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
		all := []error{next, fetch, info, subscribe, w.sub.Close(none), w.sub.Unpin(none), jetpull.Unpin(none, w.JS, "S", "C", "g"), jetpull.Unpin(t.Context(), nil, "S", "C", "g")}
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
		// Nothing about a consumer says that nats.go's OrderedConsumer made it.
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
			opts                   []jetpull.Option
			want                   []error
			says                   string
		}{
			{"no stream", "", "C", nil, []error{jetpull.ErrInvalidOption}, "stream"},
			{"wildcards", "S", "C.*", nil, []error{jetpull.ErrInvalidOption}, "consumer"},
			{"spaces", "a b", "C", nil, []error{jetpull.ErrInvalidOption}, "stream"},
			{"unknown", "S", "other", nil, []error{jetstream.ErrConsumerNotFound}, `"other"`},
			{"push", "S", "push", nil, []error{jetpull.ErrNotPull, jetstream.ErrNotPullConsumer}, "DeliverSubject"},
			{"no group", "S", "overflow", nil, []error{jetpull.ErrInvalidOption}, "Group"},
			{"other group", "S", "overflow", []jetpull.Option{jetpull.Group("x")}, []error{jetpull.ErrInvalidOption}, "Group"},
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

// foreign makes the server answer for the info of a consumer that is not
// modelled.
func (w *world) foreign(cfg jetstream.ConsumerConfig) {
	w.Peer.OnRequest("$JS.API.CONSUMER.INFO.S."+cfg.Name, func(p *natstest.Peer, r natstest.Request) {
		p.ReplyJSON(r.Reply, jetstream.ConsumerInfo{Stream: "S", Name: cfg.Name, Config: cfg})
	})
}

// Each pull, at once or for later, carries the terms of its call, and no others.
func TestPullsCarryTheirTerms(t *testing.T) {
	group := jetpull.Group("g")
	for name, tt := range map[string]struct {
		cfg  jetstream.ConsumerConfig
		opts []jetpull.Option
		want natstest.PullRequest
	}{
		"max bytes":                   {jetstream.ConsumerConfig{}, opts(jetpull.MaxBytes(4096)), natstest.PullRequest{MaxBytes: 4096}},
		"overflow":                    {policies["overflow"], opts(group, jetpull.MinPending(7), jetpull.MinAckPending(9)), natstest.PullRequest{Group: "g", MinPending: 7, MinAckPending: 9}},
		"overflow without thresholds": {policies["overflow"], opts(group), natstest.PullRequest{Group: "g"}},
		"priority":                    {policies["prioritized"], opts(group, jetpull.Priority(4)), natstest.PullRequest{Group: "g", Priority: 4}},
		"pinned, before the pin":      {policies["pinned"], opts(group), natstest.PullRequest{Group: "g"}},
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
