package workers

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/limit"
	"github.com/jetpull/jetpull/test/servertest"
)

// handling is one run of a handler.
type handling struct {
	key        string
	begun, end time.Time
}

// fleet runs processes of a limit, each with a connection, a limiter and a Consume of its own, until n messages are handled.
func fleet(t *testing.T, processes int, c limit.Config, work time.Duration, keys []string, opts ...jetpull.ConsumeOption) (all []handling) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	server := servertest.RunServer(t)
	js := server.JetStream(t, server.Connect(t))
	jobs := natstest.StreamWith(t, js, jetstream.StreamConfig{Name: stream, Subjects: []string{"jobs.>"}})
	_, err := jobs.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "limits"})
	require.NoError(t, err)
	for _, key := range keys {
		_, err := js.Publish(ctx, "jobs."+key, nil)
		require.NoError(t, err)
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	for range processes {
		js := server.JetStream(t, server.Connect(t))
		kv, err := js.KeyValue(ctx, "limits")
		require.NoError(t, err)
		l, err := limit.Open(ctx, kv, "bank", c)
		require.NoError(t, err)
		sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
		require.NoError(t, err)
		running.Go(func() {
			defer func() { _ = l.Close(context.Background()) }()
			defer func() { _ = sub.Close(context.Background()) }()
			err := sub.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
				h := handling{key: m.Subject(), begun: time.Now()}
				time.Sleep(work)
				h.end = time.Now()
				mu.Lock()
				defer mu.Unlock()
				if all = append(all, h); len(all) == len(keys) {
					stop()
				}
				return nil
			}, append(opts, jetpull.Limited(l, (*jetpull.Msg).Subject))...)
			if err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	require.Len(t, all, len(keys))
	return all
}

func repeat(n int, key string) (keys []string) {
	for range n {
		keys = append(keys, key)
	}
	return keys
}

// Over two processes no window has more begins of a key than the rate, and a message that waits for its key takes no worker from others.
func TestLimitedByRate(t *testing.T) {
	t.Parallel()
	const rate, window = 10, 500 * time.Millisecond
	all := fleet(t, 2, limit.Config{Rate: rate, Window: window}, 0, append(repeat(40, "a"), repeat(10, "b")...), jetpull.Concurrency(1))
	var a []time.Time
	lastB := time.Time{}
	for _, h := range all {
		if h.key == "jobs.a" {
			a = append(a, h.begun)
		} else {
			lastB = h.begun
		}
	}
	for i := rate; i < len(a); i++ {
		require.GreaterOrEqual(t, a[i].Sub(a[i-rate]), window, "begins %d to %d of the key", i-rate, i)
	}
	require.True(t, lastB.Before(a[len(a)-1]), "the messages of b, which came last, went on beside those of a")
}

// Over two processes a key has no more handlers at a time than the limit, and all messages are handled once.
func TestLimitedByConcurrency(t *testing.T) {
	t.Parallel()
	all := fleet(t, 2, limit.Config{Concurrent: 2, TTL: 2 * time.Second}, 20*time.Millisecond, repeat(40, "a"), jetpull.Concurrency(8))
	for i, h := range all {
		beside := 0
		for j, other := range all {
			if i != j && !other.begun.After(h.begun) && other.end.After(h.begun) {
				beside++
			}
		}
		require.Less(t, beside, 2, "handlers beside that of %v", h.begun)
	}
}

// A limit that is closed holds messages up, says so, and costs none of them an attempt.
func TestLimitedByAClosedLimiter(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	server := servertest.RunServer(t)
	js := server.JetStream(t, server.Connect(t))
	jobs := natstest.StreamWith(t, js, jetstream.StreamConfig{Name: stream, Subjects: []string{"jobs.>"}})
	_, err := jobs.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
	require.NoError(t, err)
	defer func() { _ = sub.Close(context.Background()) }()
	_, err = js.Publish(ctx, "jobs.a", nil)
	require.NoError(t, err)
	problems := make(chan error, 100)
	err = sub.Consume(ctx, func(context.Context, *jetpull.Msg) error {
		t.Error("the handler began")
		return nil
	}, jetpull.Limited(&limit.Limiter{}, (*jetpull.Msg).Subject), jetpull.MaxAttempts(1), jetpull.OnError(func(err error) {
		problems <- err
		stop()
	}))
	require.NoError(t, err)
	require.ErrorIs(t, <-problems, limit.ErrClosed)
	require.Zero(t, sub.Stats().Failed)
	require.EqualValues(t, 1, sub.Stats().HandedBack)
}
