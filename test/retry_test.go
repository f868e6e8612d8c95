package test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// TestARetryIsDueOnAConsumerWithBackOff: the server adds the entries of BackOff to the delay of a NAK, which comes before an entry is over.
func TestARetryIsDueOnAConsumerWithBackOff(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		backOff []time.Duration
		delay   time.Duration
	}{
		"it grows":    {[]time.Duration{2 * time.Second, time.Hour}, 3 * time.Second},
		"it shrinks":  {[]time.Duration{8 * time.Second, 2 * time.Second}, 4 * time.Second},
		"the default": {[]time.Duration{2 * time.Second, 3 * time.Second, 3 * time.Second, time.Hour}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			sub := r.subscribe(t, jetstream.ConsumerConfig{BackOff: tt.backOff})
			r.publish(t, 1)
			var opts []jetpull.ConsumeOption
			if tt.delay > 0 {
				opts = append(opts, jetpull.RetryDelays(tt.delay))
			}
			ctx, stop := context.WithTimeout(t.Context(), patience)
			defer stop()
			var attempts []time.Time
			require.NoError(t, sub.Consume(ctx, func(context.Context, *jetpull.Msg) error {
				if attempts = append(attempts, time.Now()); len(attempts) == 4 {
					stop()
					return nil
				}
				return errNoUse
			}, opts...))
			require.Len(t, attempts, 4, "before the server's BackOff of an hour")
			for i := 1; i < len(attempts); i++ {
				least := tt.delay
				if least == 0 {
					least = tt.backOff[i-1]
				}
				require.GreaterOrEqual(t, attempts[i].Sub(attempts[i-1]), least-10*time.Millisecond, "attempt %d", i+1)
			}
		})
	}
}

// TestADeadLetterThatIsTooLargeIsReduced, and does not count as an outage: its handler runs once, and the stream has a copy.
func TestADeadLetterThatIsTooLargeIsReduced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	natstest.Stream(t, r.js, "T", "t.>")
	n := 0
	for name, tt := range map[string]struct {
		most, header, body int
		payload, headers   string
	}{
		"it fits":                  {100000, 10, 1000, "", ""},
		"payload over MaxMsgSize":  {2000, 10, 10000, "too large", ""},
		"headers over MaxMsgSize":  {2000, 10000, 10, "too large", "too large"},
		"headers over 64 KiB":      {-1, 65400, 10, "too large", "too large"},
		"payload over max_payload": {-1, 10, 1<<20 - 100, "too large", ""},
		"headers and no payload":   {2000, 10000, 0, "too large", "too large"},
	} {
		for way, opts := range map[string][]jetpull.ConsumeOption{"sent away": nil, "in place": {byKey}} {
			t.Run(name+", "+way, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), patience)
				defer stop()
				n++
				subject := fmt.Sprint("d", n)
				stream, err := r.js.CreateStream(ctx, jetstream.StreamConfig{Name: subject, Subjects: []string{subject}, MaxMsgSize: int32(tt.most)})
				require.NoError(t, err)
				m := nats.NewMsg("t." + subject)
				m.Data = make([]byte, tt.body)
				m.Header.Set("Own", strings.Repeat("x", tt.header))
				_, err = r.js.PublishMsg(ctx, m)
				require.NoError(t, err)
				natstest.Consumer(t, r.js, "T", jetstream.ConsumerConfig{Durable: subject, FilterSubject: m.Subject, MaxDeliver: 1 + len(opts)})
				calls := 0
				require.NoError(t, subscribe(t, r.js, "T", subject).Consume(ctx, func(context.Context, *jetpull.Msg) error { calls++; return errNoUse },
					append(opts, jetpull.MaxAttempts(1), jetpull.DeadLetter(subject), jetpull.OnEvent(func(e jetpull.Event) {
						require.Equal(t, jetpull.DeadLettered, e.Outcome)
						stop()
					}))...))
				require.Equal(t, 1, calls)
				dead, err := stream.GetMsg(t.Context(), 1)
				require.NoError(t, err)
				require.Equal(t, []string{tt.payload, tt.headers, errNoUse.Error(), m.Subject},
					[]string{
						dead.Header.Get(jetpull.HeaderDeadPayload), dead.Header.Get(jetpull.HeaderDeadHeaders), dead.Header.Get(jetpull.HeaderDeadReason),
						dead.Header.Get(jetpull.HeaderDeadSubject),
					})
				require.Equal(t, tt.headers == "", dead.Header.Get("Own") != "")
				require.Equal(t, tt.payload == "", len(dead.Data) > 0)
			})
		}
	}
}

// TestAFullStreamOfDeadLettersIsAnOutage: the copy is stored in full when the stream takes it.
func TestAFullStreamOfDeadLettersIsAnOutage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	stream, err := r.js.CreateStream(ctx, jetstream.StreamConfig{Name: "D", Subjects: []string{"dead.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew})
	require.NoError(t, err)
	natstest.Publish(t, r.js, "dead.other", 1)
	sub := r.subscribe(t, jetstream.ConsumerConfig{})
	r.publish(t, 1)
	require.NoError(t, sub.Consume(ctx, func(context.Context, *jetpull.Msg) error { return errNoUse }, jetpull.MaxAttempts(1),
		jetpull.DeadLetter("dead.s"),
		jetpull.OnError(func(err error) {
			require.ErrorContains(t, err, "maximum messages exceeded")
			require.NoError(t, stream.Purge(ctx))
		}), jetpull.OnEvent(func(e jetpull.Event) {
			if e.Outcome == jetpull.DeadLettered {
				stop()
			}
		})))
	dead, err := stream.GetLastMsgForSubject(t.Context(), "dead.s")
	require.NoError(t, err)
	require.Empty(t, dead.Header.Get(jetpull.HeaderDeadPayload))
}
