package jetpull

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestOptionsWithoutEffectAreRefused by name, with the value, the consumer or what
// is missing, and with what to do.
func TestOptionsWithoutEffectAreRefused(t *testing.T) {
	all := &jetstream.ConsumerConfig{Durable: "all", AckPolicy: jetstream.AckAllPolicy}
	none := &jetstream.ConsumerConfig{Durable: "none", AckPolicy: jetstream.AckNonePolicy}
	pin := func(PinEvent) {}
	const leave, create = "leave the option out", "create the consumer"
	for name, tc := range map[string]struct {
		cfg    *jetstream.ConsumerConfig
		option Option
		with   []Option
		says   []string
	}{
		"a key where nothing is out of order": {all, OrderedBy((*Msg).Subject), nil, []string{`"all"`, leave, create}},
		"no key":                              {plainConsumer, OrderedBy(nil), nil, []string{"nil", leave}},
		"keep alive without acks":             {none, KeepAlive(true), nil, []string{"true", `"none"`, leave, create}},
		"no keep alive without acks":          {none, KeepAlive(false), nil, []string{"false", `"none"`, leave, create}},
		"retry delays without acks":           {none, RetryDelays(time.Second), nil, []string{"[1s]", `"none"`, leave, create}},
		"attempts without acks":               {none, MaxAttempts(3), nil, []string{": MaxAttempts: 3", `"none"`, leave, create}},
		"a dead letter without acks":          {none, DeadLetter("dead"), nil, []string{"dead", `"none"`, leave, create}},
		"no retry delay":                      {plainConsumer, RetryDelays(), nil, []string{"no entries", leave}},
		"pin without pins":                    {plainConsumer, OnPin(pin), nil, []string{`"plain"`, "policy none", "pinned_client", leave}},
		"unpin without pins":                  {plainConsumer, OnUnpin(pin), nil, []string{`"plain"`, "policy none", "pinned_client", leave}},
		"pin with another policy":             {overflowConsumer, OnPin(pin), []Option{Group("g")}, []string{`"overflow"`, "policy overflow", "pinned_client", leave}},
		"no pin callback":                     {&pinnedConsumer, OnPin(nil), []Option{Group("g")}, []string{"nil", leave}},
		"no unpin callback":                   {&pinnedConsumer, OnUnpin(nil), []Option{Group("g")}, []string{"nil", leave}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []call{callConsume, callSubscribe} {
				_, err := defaultSettings().with(c, tc.cfg, append(tc.with, tc.option))
				require.ErrorIs(t, err, ErrInvalidOption, "%s", c)
				require.ErrorContains(t, err, "invalid option: "+tc.option.name+": ")
				for _, text := range tc.says {
					require.ErrorContains(t, err, text)
				}
				for _, other := range []string{"MaxAttempts", "RetryDelays", "DeadLetter"} {
					if other != tc.option.name {
						require.NotContains(t, err.Error(), other, "it was not given")
					}
				}
			}
		})
	}
}

// TestADeadLetterByDefault: how often is tried may be said with the call.
func TestADeadLetterByDefault(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		s.publish(1)
		for _, opts := range [][]Option{nil, {Concurrency(2)}} {
			err := s.sub.Consume(t.Context(), alwaysFails, opts...)
			require.ErrorIs(t, err, ErrInvalidOption)
			require.ErrorContains(t, err, `DeadLetter: "dead.letters" needs MaxAttempts`)
		}
		require.Zero(t, s.pullCount(), "nothing was sent")
		r := s.consume(alwaysFails, MaxAttempts(2))
		pass(time.Second)
		require.NoError(t, r.stop())
		require.Equal(t, []string{"1"}, g.bodies())

		s.publish(1)
		m, err := s.sub.Next(t.Context())
		require.NoError(t, err, "it is for Consume alone")
		require.NoError(t, m.Ack())
	}, DeadLetter("dead.letters"))
}
