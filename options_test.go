package jetpull

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// Consumers of each policy.
var (
	plainConsumer       = &jetstream.ConsumerConfig{Durable: "plain"}
	overflowConsumer    = &jetstream.ConsumerConfig{Durable: "overflow", PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{"g"}}
	prioritizedConsumer = &jetstream.ConsumerConfig{Durable: "prioritized", PriorityPolicy: jetstream.PriorityPolicyPrioritized, PriorityGroups: []string{"g"}}
)

// everyOption has a valid value of each option, and the calls that can use it.
var everyOption = []struct {
	option Option
	uses   call
	cfg    *jetstream.ConsumerConfig // plain unless set
	with   []Option                  // without which it is refused
	set    func(*settings) any
	want   any
}{
	{option: MaxWait(time.Second), uses: callNext | callFetch, set: func(s *settings) any { return s.maxWait }, want: time.Second},
	{option: NoWait(), uses: callNext | callFetch, set: func(s *settings) any { return s.noWait }, want: true},
	{option: FillBatch(), uses: callFetch, set: func(s *settings) any { return s.fillBatch }, want: true},
	{option: MaxBytes(100), uses: callAll, set: func(s *settings) any { return s.maxBytes }, want: 100},
	{option: Heartbeat(time.Second), uses: callAll, set: func(s *settings) any { return s.heartbeat }, want: time.Second},
	{option: Group("g"), uses: callAll, cfg: overflowConsumer, set: func(s *settings) any { return s.terms.group }, want: "g"},
	{option: MinPending(3), uses: callAll, cfg: overflowConsumer, with: []Option{Group("g")}, set: func(s *settings) any { return s.terms.minPending }, want: int64(3)},
	{option: MinAckPending(4), uses: callAll, cfg: overflowConsumer, with: []Option{Group("g")}, set: func(s *settings) any { return s.terms.minAckPending }, want: int64(4)},
	{option: Priority(9), uses: callAll, cfg: prioritizedConsumer, with: []Option{Group("g")}, set: func(s *settings) any { return s.terms.priority }, want: 9},
	{option: OnPin(func(PinEvent) {}), uses: callAll, cfg: &pinnedConsumer, with: []Option{Group("g")}, set: func(s *settings) any { return s.onPin != nil }, want: true},
	{option: OnUnpin(func(PinEvent) {}), uses: callAll, cfg: &pinnedConsumer, with: []Option{Group("g")}, set: func(s *settings) any { return s.onUnpin != nil }, want: true},
	{option: Concurrency(3), uses: callConsume, set: func(s *settings) any { return s.streaming.concurrency }, want: 3},
	{option: OrderedBy((*Msg).Subject), uses: callConsume, set: func(s *settings) any { return s.streaming.orderedBy != nil }, want: true},
	{option: Prefetch(7), uses: callStream, set: func(s *settings) any { return s.streaming.prefetch }, want: 7},
	{option: PrefetchBytes(700), uses: callStream, set: func(s *settings) any { return s.streaming.prefetchBytes }, want: 700},
	{option: KeepAlive(false), uses: callStream, set: func(s *settings) any { return s.streaming.keepAlive }, want: false},
	{option: RetryDelays(time.Second, time.Minute), uses: callConsume, set: func(s *settings) any { return s.streaming.retryDelays }, want: []time.Duration{time.Second, time.Minute}},
	{option: MaxAttempts(5), uses: callConsume, set: func(s *settings) any { return s.streaming.maxAttempts }, want: 5},
	{option: DeadLetter("dead"), uses: callConsume, with: []Option{MaxAttempts(5)}, set: func(s *settings) any { return s.streaming.deadLetter }, want: "dead"},
	{option: DrainTimeout(time.Second), uses: callConsume, set: func(s *settings) any { return s.streaming.drainTimeout }, want: time.Second},
	{option: OnError(func(error) {}), uses: callConsume, set: func(s *settings) any { return s.streaming.onError != nil }, want: true},
	{option: AwaitConsumer(), uses: callStream, set: func(s *settings) any { return s.streaming.awaitConsumer }, want: true},
	{option: Logger(slog.New(slog.DiscardHandler)), uses: callStream, set: func(s *settings) any { return s.logger != nil }, want: true},
}

func TestEveryOptionWithEveryCall(t *testing.T) {
	for _, o := range everyOption {
		cfg := o.cfg
		if cfg == nil {
			cfg = plainConsumer
		}
		for _, c := range []call{callNext, callFetch, callMessages, callConsume, callSubscribe} {
			t.Run(fmt.Sprintf("%s/%s", o.option.name, c), func(t *testing.T) {
				var opts []Option
				for _, w := range o.with {
					if c == callSubscribe || w.uses&c != 0 {
						opts = append(opts, w)
					}
				}
				opts = append(opts, o.option)
				before := *defaultSettings()
				defaults := defaultSettings()
				got, err := defaults.with(c, cfg, opts)
				if c != callSubscribe && o.uses&c == 0 {
					require.ErrorIs(t, err, ErrInvalidOption)
					require.ErrorIs(t, err, jetstream.ErrInvalidOption)
					require.ErrorContains(t, err, o.option.name)
					require.ErrorContains(t, err, c.String())
					return
				}
				require.NoError(t, err)
				require.Equal(t, o.want, o.set(got))
				before.logger, defaults.logger = nil, nil
				require.True(t, reflect.DeepEqual(before, *defaults), "the defaults are not touched")
				if c != callSubscribe {
					return
				}
				// As a default it holds for every call.
				again, err := got.with(callNext, cfg, []Option{MaxBytes(1)})
				require.NoError(t, err)
				if o.option.name != "MaxBytes" {
					require.Equal(t, o.want, o.set(again))
				}
			})
		}
	}
}

func TestOptionsOutOfRange(t *testing.T) {
	for _, tt := range []struct {
		option Option
		cfg    *jetstream.ConsumerConfig
		with   []Option
	}{
		{option: MaxWait(0)},
		{option: MaxWait(-time.Second)},
		{option: MaxWait(time.Millisecond - 1)},
		{option: MaxWait(math.MaxInt64)},
		{option: MaxWait(maxWait + 1)},
		{option: Heartbeat(0)},
		{option: Heartbeat(-1)},
		{option: Heartbeat(time.Microsecond)},
		{option: Heartbeat(math.MaxInt64)},
		{option: Heartbeat(time.Second), with: []Option{MaxWait(2 * time.Second)}},
		{option: MaxBytes(0)},
		{option: MaxBytes(-1)},
		{option: MaxBytes(math.MaxInt32 + 1)},
		{option: Group("g")},
		{option: Group("")},
		{option: Group("other"), cfg: overflowConsumer},
		{option: Group("a b"), cfg: overflowConsumer},
		{option: Group("a.b"), cfg: overflowConsumer},
		{option: Group("longer than sixteen"), cfg: overflowConsumer},
		{option: MinPending(0), cfg: overflowConsumer, with: []Option{Group("g")}},
		{option: MinPending(-5), cfg: overflowConsumer, with: []Option{Group("g")}},
		{option: MinPending(5)},
		{option: MinPending(5), cfg: prioritizedConsumer, with: []Option{Group("g")}},
		{option: MinAckPending(0), cfg: overflowConsumer, with: []Option{Group("g")}},
		{option: MinAckPending(1), cfg: prioritizedConsumer, with: []Option{Group("g")}},
		{option: Priority(-1), cfg: prioritizedConsumer, with: []Option{Group("g")}},
		{option: Priority(10), cfg: prioritizedConsumer, with: []Option{Group("g")}},
		{option: Priority(0), cfg: overflowConsumer, with: []Option{Group("g")}},
		{option: Priority(0)},
		{option: FillBatch(), with: []Option{NoWait()}},
	} {
		name := fmt.Sprintf("%s %+v", tt.option.name, describeOption(tt.option))
		t.Run(name, func(t *testing.T) {
			cfg := tt.cfg
			if cfg == nil {
				cfg = plainConsumer
			}
			for _, c := range []call{callFetch, callSubscribe} {
				if tt.option.name == "Group" && tt.option.apply != nil && describeOption(tt.option).terms.group == "" {
					cfg = overflowConsumer // where one is needed
				}
				_, err := defaultSettings().with(c, cfg, append(tt.with, tt.option))
				require.ErrorIs(t, err, ErrInvalidOption)
				require.ErrorContains(t, err, tt.option.name)
			}
		})
	}
}

// describeOption is what an option sets.
func describeOption(o Option) settings {
	var s settings
	o.apply(&s)
	return s
}

func TestOptionsAtTheirBounds(t *testing.T) {
	for _, opts := range [][]Option{
		{MaxWait(time.Millisecond)},
		{MaxWait(maxWait)},
		{MaxWait(10 * time.Second), Heartbeat(4950 * time.Millisecond)},
		{Heartbeat(time.Millisecond)},
		{MaxBytes(1)},
		{MaxBytes(math.MaxInt32)},
	} {
		_, err := defaultSettings().with(callFetch, plainConsumer, opts)
		require.NoError(t, err)
	}
	for p := range 10 {
		_, err := defaultSettings().with(callFetch, prioritizedConsumer, []Option{Group("g"), Priority(p)})
		require.NoError(t, err)
	}
	_, err := defaultSettings().with(callFetch, overflowConsumer, []Option{Group("g"), MinPending(math.MaxInt64), MinAckPending(1)})
	require.NoError(t, err)
}

func TestAnEmptyOption(t *testing.T) {
	for _, c := range []call{callNext, callSubscribe} {
		_, err := defaultSettings().with(c, plainConsumer, []Option{{}})
		require.ErrorIs(t, err, ErrInvalidOption)
	}
}

func TestAMissingGroup(t *testing.T) {
	_, err := defaultSettings().with(callSubscribe, overflowConsumer, nil)
	require.ErrorIs(t, err, ErrInvalidOption)
	require.ErrorContains(t, err, "Group")
	require.ErrorContains(t, err, `["g"]`, "the error names the groups that there are")
}

func TestCallsOverrideDefaults(t *testing.T) {
	defaults, err := defaultSettings().with(callSubscribe, plainConsumer, []Option{MaxWait(time.Minute), Heartbeat(10 * time.Second), MaxBytes(5)})
	require.NoError(t, err)
	got, err := defaults.with(callNext, plainConsumer, []Option{MaxWait(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, time.Hour, got.maxWait)
	require.Equal(t, 10*time.Second, got.heartbeat)
	require.Equal(t, 5, got.maxBytes)
	_, err = defaults.with(callNext, plainConsumer, []Option{MaxWait(time.Second)})
	require.ErrorContains(t, err, "Heartbeat", "the two together make no sense")

	same, err := defaults.with(callNext, plainConsumer, nil)
	require.NoError(t, err)
	require.Same(t, defaults, same, "a call without options allocates nothing")

	// NoWait and FillBatch exclude each other; the one given to the call counts.
	patient, err := defaultSettings().with(callSubscribe, plainConsumer, []Option{FillBatch()})
	require.NoError(t, err)
	got, err = patient.with(callFetch, plainConsumer, []Option{NoWait()})
	require.NoError(t, err)
	require.True(t, got.noWait && !got.fillBatch)
	got, err = patient.with(callNext, plainConsumer, []Option{NoWait()})
	require.NoError(t, err)
	require.True(t, got.noWait)
	hasty, err := defaultSettings().with(callSubscribe, plainConsumer, []Option{NoWait()})
	require.NoError(t, err)
	got, err = hasty.with(callFetch, plainConsumer, []Option{FillBatch()})
	require.NoError(t, err)
	require.True(t, got.fillBatch && !got.noWait)
}

func TestNoWaitExcludesHeartbeat(t *testing.T) {
	for _, c := range []call{callNext, callFetch} {
		for _, opts := range [][]Option{{NoWait(), Heartbeat(time.Second)}, {Heartbeat(time.Second), NoWait()}} {
			_, err := defaultSettings().with(c, plainConsumer, opts)
			require.ErrorIs(t, err, ErrInvalidOption)
			require.ErrorContains(t, err, "Heartbeat")
			require.ErrorContains(t, err, "NoWait")
		}
		beating, err := defaultSettings().with(callSubscribe, plainConsumer, []Option{Heartbeat(time.Second)})
		require.NoError(t, err)
		got, err := beating.with(c, plainConsumer, []Option{NoWait()})
		require.NoError(t, err, "a default that has no place in this call is left out")
		require.True(t, got.noWait)
		_, err = hastyDefaults(t).with(c, plainConsumer, []Option{Heartbeat(time.Second)})
		require.ErrorIs(t, err, ErrInvalidOption, "the call cannot use what it was given")
	}
	both, err := defaultSettings().with(callSubscribe, plainConsumer, []Option{NoWait(), Heartbeat(time.Second)})
	require.NoError(t, err, "one is for Next and Fetch, the other for Messages and Consume")
	got, err := both.with(callFetch, plainConsumer, []Option{FillBatch(), MaxWait(time.Minute), Heartbeat(2 * time.Second)})
	require.NoError(t, err, "FillBatch takes the place of NoWait")
	require.Equal(t, 2*time.Second, got.heartbeat)
	for _, c := range []call{callMessages, callConsume} {
		_, err = hastyDefaults(t).with(c, plainConsumer, []Option{Heartbeat(time.Second)})
		require.NoError(t, err, "NoWait is not for %s", c)
	}
}

func hastyDefaults(t *testing.T) *settings {
	s, err := defaultSettings().with(callSubscribe, plainConsumer, []Option{NoWait()})
	require.NoError(t, err)
	return s
}

func TestPrefetchBelowConcurrency(t *testing.T) {
	refused := func(s *settings, c call, opts ...Option) {
		t.Helper()
		_, err := s.with(c, plainConsumer, opts)
		require.ErrorIs(t, err, ErrInvalidOption)
		require.ErrorContains(t, err, "Prefetch: 3 is below Concurrency 8")
	}
	fine := func(s *settings, c call, opts ...Option) *settings {
		t.Helper()
		got, err := s.with(c, plainConsumer, opts)
		require.NoError(t, err)
		return got
	}
	refused(defaultSettings(), callConsume, Prefetch(3), Concurrency(8))
	refused(defaultSettings(), callSubscribe, Prefetch(3), Concurrency(8))
	fine(defaultSettings(), callConsume, Prefetch(8), Concurrency(8))
	fine(defaultSettings(), callConsume, Concurrency(8))
	wide := fine(defaultSettings(), callSubscribe, Concurrency(8))
	refused(wide, callConsume, Prefetch(3))
	fine(wide, callMessages, Prefetch(3))
	narrow := fine(defaultSettings(), callSubscribe, Prefetch(3))
	refused(narrow, callConsume, Concurrency(8))
	fine(narrow, callNext, MaxBytes(5))
}

func TestHeartbeatAndWaitOfACall(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		_, err := s.sub.Next(t.Context(), Heartbeat(3*time.Second))
		require.ErrorIs(t, err, ErrInvalidOption, "more than half of the default wait")
		require.Empty(t, s.got())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := s.next(ctx, Heartbeat(10*time.Second))
		require.Equal(t, 10*time.Second, s.got()[1].Req.Heartbeat, "the context gives time enough")
		s.publish(1)
		require.NoError(t, (<-got).err)
		patient, err := Subscribe(t.Context(), s.js, "S", "C", Heartbeat(10*time.Second))
		require.NoError(t, err)
		_, err = patient.Next(t.Context(), MaxBytes(5), NoWait())
		require.ErrorIs(t, err, ErrNoMessages, "a default that has no place in this call is left out")
		require.NoError(t, patient.Close(t.Context()))
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got = s.next(short, Heartbeat(10*time.Second))
		require.Zero(t, s.got()[len(s.got())-1].Req.Heartbeat, "what is left of a context may be too short for it")
		s.publish(1)
		require.NoError(t, (<-got).err)
	})
}

func TestArgumentsOfCalls(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		before := s.nc.NumSubscriptions()
		for _, n := range []int{0, -1, math.MinInt, math.MaxInt32 + 1} {
			_, err := s.sub.Fetch(t.Context(), n)
			require.ErrorIs(t, err, ErrInvalidOption)
			require.ErrorContains(t, err, fmt.Sprintf("n: %d", n))
		}
		_, err := s.sub.Next(nil) //nolint:staticcheck // a nil context is what is tested
		require.ErrorIs(t, err, ErrInvalidOption)
		_, err = s.sub.Fetch(nil, 1) //nolint:staticcheck // a nil context is what is tested
		require.ErrorIs(t, err, ErrInvalidOption)
		require.Empty(t, s.got(), "nothing sent")
		require.Equal(t, before, s.nc.NumSubscriptions(), "nothing left")
	})
}

func TestSubscribeRefuses(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		s.peer.SetConsumer("S", "push", jetstream.ConsumerConfig{DeliverSubject: "d"})
		s.peer.SetConsumer("S", "grouped", *overflowConsumer)
		before := s.nc.NumSubscriptions()
		for _, tt := range []struct {
			name, stream, consumer string
			opts                   []Option
			want                   []error
			says                   string
		}{
			{"no stream", "", "C", nil, []error{ErrInvalidOption}, "stream"},
			{"wildcards", "S", "C.*", nil, []error{ErrInvalidOption}, "consumer"},
			{"spaces", "a b", "C", nil, []error{ErrInvalidOption}, "stream"},
			{"unknown", "S", "other", nil, []error{jetstream.ErrConsumerNotFound}, `"other"`},
			{"push", "S", "push", nil, []error{ErrNotPull, jetstream.ErrNotPullConsumer}, "DeliverSubject"},
			{"no group", "S", "grouped", nil, []error{ErrInvalidOption}, "Group"},
			{"other group", "S", "grouped", []Option{Group("x")}, []error{ErrInvalidOption}, "Group"},
			{"group without need", "S", "C", []Option{Group("g")}, []error{ErrInvalidOption}, "Group"},
			{"threshold", "S", "C", []Option{MinPending(1)}, []error{ErrInvalidOption}, "MinPending"},
			{"bad option", "S", "C", []Option{MaxWait(0)}, []error{ErrInvalidOption}, "MaxWait"},
		} {
			sub, err := Subscribe(t.Context(), s.js, tt.stream, tt.consumer, tt.opts...)
			require.Nil(t, sub, tt.name)
			for _, want := range tt.want {
				require.ErrorIs(t, err, want, tt.name)
			}
			require.ErrorContains(t, err, tt.says, tt.name)
		}
		_, err := Subscribe(t.Context(), nil, "S", "C")
		require.ErrorIs(t, err, ErrInvalidOption)
		require.Equal(t, before, s.nc.NumSubscriptions(), "no subscription is left")
		sub, err := Subscribe(t.Context(), s.js, "S", "grouped", Group("g"), MinPending(3))
		require.NoError(t, err)
		require.NoError(t, sub.Close(t.Context()))
	})
}

func TestTheServerDoesNotAnswerSubscribe(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		before := s.nc.NumSubscriptions()
		s.peer.Pause(true)
		start := time.Now()
		_, err := Subscribe(t.Context(), s.js, "S", "C")
		require.ErrorIs(t, err, ErrTimeout)
		require.Equal(t, 5*time.Second, time.Since(start))
		s.peer.Pause(false)
		require.Equal(t, before, s.nc.NumSubscriptions())
	})
}
