package page

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/sample"
)

// busy are consumers of which all but the last acknowledge between two samples.
type busy struct {
	ConsumerSource
	floor uint64
}

func (b *busy) Consumers(context.Context) (all []*jetstream.ConsumerInfo, err error) {
	b.floor++
	for i := range 10 * oldestAtOnce {
		all = append(all, &jetstream.ConsumerInfo{Stream: "S", Name: strconv.Itoa(i), NumAckPending: 1, AckFloor: jetstream.SequenceInfo{Stream: b.floor}})
	}
	all[len(all)-1].AckFloor.Stream = 1
	return all, nil
}

func (*busy) Oldest(context.Context, *jetstream.ConsumerInfo) (time.Time, error) {
	return time.Now(), nil
}

// The oldest message of a consumer that is stuck is known, however many others acknowledge.
func TestTheOldestMessageOfAStuckConsumerIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sample.New()
		defer s.Close()
		defer s.Watch()()
		c := NewConsumers(s, &busy{}, NewRunner(slog.New(slog.DiscardHandler)))
		time.Sleep(time.Minute)
		synctest.Wait()
		all := c.latest.Get().Value
		stuck := all[len(all)-1]
		require.False(t, stuck.oldest.IsZero())
		require.Greater(t, stuck.unacknowledged(), 50.0)
	})
}
