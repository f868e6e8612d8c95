package jetpull_test

import (
	"context"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/stage"
	"github.com/jetpull/jetpull/limit"
)

// marks is a bucket of MaxCrashes that counts the records it has.
type marks struct {
	jetstream.KeyValue

	asked func() // before each answer

	mu   sync.Mutex
	made int
	keys map[string]bool
}

func (m *marks) Bucket() string { return "crashes" }

func (m *marks) Get(ctx context.Context, _ string) (jetstream.KeyValueEntry, error) {
	m.asked()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, jetstream.ErrKeyNotFound
}

func (m *marks) Create(_ context.Context, key string, _ []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	m.keys[key] = true
	return 1, nil
}

func (m *marks) Delete(_ context.Context, key string, _ ...jetstream.KVDeleteOpt) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.keys, key)
	return nil
}

// A message of a batch that is cancelled before the handler begins does not keep the others out of the batch.
func TestACancelledMessageKeepsNoOtherOutOfItsBatch(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		first := true
		cancel := func() {
			_, err := w.NC.Request("jetpull.cancel.S.C", []byte("1"), second)
			require.NoError(t, err)
		}
		r, b := w.consumeBatch(2, second, func(context.Context, []*jetpull.Msg) error {
			if first {
				first = false
				return errBroken
			}
			return nil
		}, jetpull.RetryDelays(0), jetpull.Named("batches"), jetpull.MaxCrashes(2, &marks{asked: cancel, keys: map[string]bool{}}))
		w.Publish(2)
		stage.Pass(100 * milli)
		require.Equal(t, []string{"1 2 at 0s", "1 2 at 0s"}, b.since(0))
		require.NoError(t, r.stop())
	})
}

// If the key function of Limited panics, the start that MaxCrashes has recorded has its end.
func TestALimitKeyThatPanicsLeavesNoStart(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		b := &marks{asked: func() {}, keys: map[string]bool{}}
		r := w.consume(func(context.Context, *jetpull.Msg) error { return nil }, jetpull.RetryDelays(0), jetpull.MaxAttempts(3),
			jetpull.MaxCrashes(2, b), jetpull.Limited(&limit.Limiter{}, func(*jetpull.Msg) string { panic("no key") }))
		w.Publish(1)
		stage.Pass(second)
		require.NoError(t, r.stop())
		require.Equal(t, 2, b.made)
		require.Empty(t, b.keys)
		require.EqualValues(t, 1, w.sub.Stats().Terminated)
	})
}
