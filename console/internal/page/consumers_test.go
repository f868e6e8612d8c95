package page

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
)

// busy are consumers of which all but the last acknowledge between two samples.
type busy struct {
	ConsumerSource
	floor uint64
}

func (b *busy) Consumers(context.Context) (all []*jetstream.ConsumerInfo, err error) {
	b.floor++
	for i := range 10 * agesAtOnce {
		all = append(all, &jetstream.ConsumerInfo{Stream: "S", Name: strconv.Itoa(i), NumAckPending: 1, AckFloor: jetstream.SequenceInfo{Stream: b.floor}})
	}
	all[len(all)-1].AckFloor.Stream = 1
	return all, nil
}

func (*busy) StoredAfter(context.Context, *jetstream.ConsumerInfo, uint64) (time.Time, error) {
	return time.Now(), nil
}

// The oldest message of a consumer that is stuck is known, however many others acknowledge.
func TestTheOldestMessageOfAStuckConsumerIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sample.New()
		defer s.Close()
		defer s.Watch()()
		c := NewConsumers(s, &busy{}, operation.NewRunner(slog.New(slog.DiscardHandler)))
		time.Sleep(time.Minute)
		synctest.Wait()
		all := c.latest.Get().Value
		stuck := all[len(all)-1]
		require.False(t, stuck.oldest.IsZero())
		require.Greater(t, stuck.waited(uint64(stuck.NumAckPending), stuck.oldest), 50.0)
	})
}

// late are consumers whose backlog grows, and whose oldest message has waited for 4 min in the beginning.
type late struct {
	ConsumerSource
	pending uint64
	begun   time.Time
	err     error
	limit   map[string]string
}

func (l *late) Consumers(context.Context) ([]*jetstream.ConsumerInfo, error) {
	l.pending += 10
	return []*jetstream.ConsumerInfo{{
		Stream: "S", Name: "C", NumPending: l.pending, NumWaiting: 1, Delivered: jetstream.SequenceInfo{Stream: 7},
		Config: jetstream.ConsumerConfig{Metadata: l.limit},
	}}, nil
}

func (l *late) StoredAfter(_ context.Context, _ *jetstream.ConsumerInfo, sequence uint64) (time.Time, error) {
	if sequence != 7 {
		return time.Time{}, errors.New("no other message was asked for")
	}
	return l.begun.Add(-4 * time.Minute), l.err
}

// A consumer that falls behind is red, unless its metadata allow it, and never green while its lag is not known.
func TestLagIsJudged(t *testing.T) {
	for _, test := range []struct {
		source       late
		first, later string
	}{
		{late{}, "behind", "falls behind"},
		{late{limit: map[string]string{state.MetadataLag: "1h"}}, "working", "working"},
		{late{err: errors.New("no answer")}, "not known", "not known"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := sample.New()
			defer s.Close()
			test.source.begun = time.Now()
			c := NewConsumers(s, &test.source, operation.NewRunner(slog.New(slog.DiscardHandler)))
			synctest.Wait()
			require.Equal(t, test.first, c.latest.Get().Value[0].state.Word)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			require.Equal(t, test.later, c.latest.Get().Value[0].state.Word)
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			require.NotEqual(t, state.Green, c.latest.Get().Value[0].state.Level, "the backlog has grown for 5 min")
		})
	}
}

// replaced is a consumer whose pending message was removed before the console read it. Others were stored since.
type replaced struct {
	late
	asked int
}

func (r *replaced) StoredAfter(ctx context.Context, c *jetstream.ConsumerInfo, sequence uint64) (time.Time, error) {
	if r.asked++; r.asked == 1 {
		return time.Time{}, nil
	}
	return r.late.StoredAfter(ctx, c, sequence)
}

// A consumer with pending messages has a lag, though the first of them was removed when the console read it.
func TestLagAfterAMessageThatWasRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sample.New()
		defer s.Close()
		c := NewConsumers(s, &replaced{late: late{begun: time.Now()}}, operation.NewRunner(slog.New(slog.DiscardHandler)))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, "falls behind", c.latest.Get().Value[0].state.Word)
	})
}
