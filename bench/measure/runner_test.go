package measure

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/natsembed"
)

// testRunner runs on a server in this process, with a proxy for the slow link.
func testRunner(t *testing.T, delay time.Duration) *Runner {
	t.Helper()
	srv, err := natsembed.Start(t.Context(), natsembed.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(srv.Stop)
	proxy := natstest.NewProxy(t, srv.URL())
	proxy.Delay(delay)
	links := Links{Direct: link(t, srv.URL()), Delayed: link(t, proxy.URL())}
	t.Cleanup(links.Close)
	runner := NewRunner(links, Plan{Rounds: 1, Payload: 128, Streams: "BENCH"})
	t.Cleanup(func() {
		require.NoError(t, runner.Close(t.Context()))
		for name := range links.Direct.StreamNames(context.WithoutCancel(t.Context())).Name() {
			assert.Fail(t, "a stream is left", name)
		}
	})
	return runner
}

func link(t *testing.T, url string) Link {
	t.Helper()
	conn, err := nats.Connect(url)
	require.NoError(t, err)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	return Link{js}
}

func TestOneRoundOfEveryCase(t *testing.T) {
	t.Parallel()
	runner := testRunner(t, time.Millisecond)
	for _, c := range Cases() {
		if c.Name == "slow-handler" {
			c.Messages = 5
		} else {
			c.Messages = 150
		}
		t.Run(c.Name, func(t *testing.T) {
			result, err := runner.Case(t.Context(), c)
			require.NoError(t, err)
			assert.Empty(t, result.Failed)
			require.Len(t, result.Contenders, len(c.contenders()))
			for _, contender := range result.Contenders {
				require.Len(t, contender.Samples, 1, contender.Name)
				assert.Positive(t, contender.Samples[0].Elapsed, contender.Name)
				assert.Positive(t, contender.Samples[0].CPU, contender.Name)
			}
			assert.Len(t, result.Judge(), len(c.Targets)*min(1, len(result.Ours())))
		})
	}
}

// unanswered is a server whose answers do not come before the user's interrupt.
type unanswered struct{ jetstream.JetStream }

func (u unanswered) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	_, err := u.JetStream.CreateStream(ctx, cfg)
	return nil, errors.Join(context.Canceled, err)
}

// The stream that an interrupted run has asked for is removed too; see testRunner.
func TestInterruptedWhileAStreamIsMade(t *testing.T) {
	t.Parallel()
	runner := testRunner(t, 0)
	runner.links.Direct = Link{unanswered{runner.links.Direct.JetStream}}
	_, err := runner.Case(t.Context(), Select(regexp.MustCompile("^next-1$"), 10)[0])
	require.ErrorIs(t, err, context.Canceled)
}

func TestAtMostElevenCasesHaveWords(t *testing.T) {
	words := 0
	for _, c := range Cases() {
		if c.Words != "" {
			words++
			assert.Contains(t, c.Rivals[0].Name, "nats.go", c.Name)
		}
	}
	assert.Positive(t, words)
	assert.LessOrEqual(t, words, 11)
}

func TestTargetsNameContendersOfTheirCase(t *testing.T) {
	for _, c := range Cases() {
		names := map[string]bool{"": true}
		for _, r := range c.Rivals {
			names[r.Name] = true
		}
		for _, target := range c.Targets {
			assert.True(t, names[target.Rival], "case %s has no rival %q", c.Name, target.Rival)
			assert.NotEqual(t, target.AtLeast > 0, target.AtMost > 0, "case %s: one bound, %+v", c.Name, target)
		}
	}
}

// TestACheatFails runs contenders that do not do the work; each has to be caught by the check of its round.
func TestACheatFails(t *testing.T) {
	runner := testRunner(t, 0)
	read := func(ack, twice bool, n int) func(context.Context, *Round) error {
		return func(ctx context.Context, r *Round) error {
			consumer, err := r.consumer(ctx)
			if err != nil {
				return err
			}
			r.Start()
			batch, err := consumer.Fetch(n)
			if err != nil {
				return err
			}
			for m := range batch.Messages() {
				r.Receive(m.Data())
				if twice {
					r.Receive(m.Data())
				}
				if ack {
					_ = m.Ack()
				}
			}
			return r.Stop(ctx)
		}
	}
	for name, tt := range map[string]struct {
		run  func(context.Context, *Round) error
		want string
	}{
		"reads too little":    {read(true, false, 9), "received 9 of 10 messages"},
		"counts a read twice": {read(true, true, 10), "more than once"},
		"fails by itself":     {func(context.Context, *Round) error { return errors.New("no such luck") }, "no such luck"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Case{Name: "cheat", Messages: 10, Once: true, Rivals: []Contender{{Name: "cheat", Run: tt.run}}}
			result, err := runner.Case(t.Context(), c)
			require.ErrorContains(t, err, tt.want)
			assert.Contains(t, result.Failed, tt.want)
		})
	}
	t.Run("leaves acks out", func(t *testing.T) {
		runner.ackTimeout = 100 * time.Millisecond
		c := Case{Name: "cheat", Messages: 10, Once: true}
		c.Rivals = []Contender{{Name: "cheat", Run: read(false, false, 10)}}
		_, err := runner.Case(t.Context(), c)
		require.ErrorContains(t, err, "10 not acknowledged at the end: not settled after 100ms")
	})
}

// TestIdleFootprint is not parallel: it counts what the process has.
func TestIdleFootprint(t *testing.T) {
	all := idlePlans
	idlePlans = []IdlePlan{{Subscriptions: 5}, {Subscriptions: 2, Handled: 50}}
	t.Cleanup(func() { idlePlans = all })
	runner := testRunner(t, 0)
	results, err := runner.Idle(t.Context(), 50*time.Millisecond)
	require.NoError(t, err)
	require.Len(t, results, len(idleContenders)*len(idlePlans))
	for _, r := range results {
		assert.GreaterOrEqual(t, r.Goroutines, r.Subscriptions, r.Contender)
		assert.NotZero(t, r.Heap, r.Contender)
	}
	left := 0
	for stream := range runner.links.Direct.ListStreams(t.Context()).Info() {
		left += stream.State.Consumers
	}
	assert.Zero(t, left, "the consumers are deleted")
}

func TestAckedCases(t *testing.T) {
	assert.True(t, (&Case{}).acked())
	assert.False(t, (&Case{Consumer: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}}).acked())
}
