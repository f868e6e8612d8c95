package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/partition"
	"github.com/jetpull/jetpull/test/servertest"
)

// A set is resized when it has neither messages nor members. Nothing is handled twice or lost, also where a partition comes back.
func TestResize(t *testing.T) {
	for _, retention := range []jetstream.RetentionPolicy{jetstream.LimitsPolicy, jetstream.WorkQueuePolicy} {
		t.Run(retention.String(), func(t *testing.T) {
			js := server(t)
			create(t, js, 4, 1, retention)
			set, err := partition.Open(t.Context(), js, "ORDERS", orders(4))
			require.NoError(t, err)
			sizes := []int{4, 8, 2, 8}
			for round, partitions := range sizes {
				if round > 0 {
					require.NoError(t, resize(t, set, partitions))
					require.ErrorIs(t, set.Consume(t.Context(), ignore), jetpull.ErrInvalidOption, "it is of the old number")
					_, err = set.Status(t.Context())
					require.ErrorContains(t, err, fmt.Sprintf("with %d partitions", partitions))
					_, err = partition.Open(t.Context(), js, "ORDERS", orders(sizes[round-1]))
					require.ErrorContains(t, err, fmt.Sprintf("makes %d of them", partitions))
					set, err = partition.Open(t.Context(), js, "ORDERS", orders(partitions))
					require.NoError(t, err)
				}
				for n := range 40 {
					_, err := js.Publish(t.Context(), fmt.Sprintf("orders.k%d", n), fmt.Append(nil, round))
					require.NoError(t, err)
				}
				require.Eventually(t, func() bool { // the server counts a moment later what it has stored
					all, err := set.Status(t.Context())
					pending := uint64(0)
					for _, p := range all {
						pending += p.Pending
					}
					return err == nil && pending == 40
				}, time.Minute, 10*time.Millisecond)
				require.ErrorIs(t, set.Resize(t.Context(), partitions+1), partition.ErrNotEmpty)
				got := consumeRound(t, set, 40)
				for n := range 40 {
					key := fmt.Sprintf("k%d", n)
					require.Equal(t, []string{fmt.Sprint(round)}, got[fmt.Sprintf("orders.%d.%s", partition.Of(key, partitions), key)])
				}
				all, err := set.Status(t.Context())
				require.NoError(t, err)
				require.Len(t, all, partitions)
				stream, err := js.Stream(t.Context(), "ORDERS")
				require.NoError(t, err)
				require.Equal(t, partitions, stream.CachedInfo().State.Consumers)
			}
			require.NoError(t, set.Delete(t.Context()))
		})
	}
}

// resize repeats Resize until the server has taken in all acknowledgements.
func resize(t *testing.T, set *partition.Set, partitions int) (err error) {
	t.Helper()
	require.Eventually(t, func() bool {
		err = set.Resize(t.Context(), partitions)
		return !errors.Is(err, partition.ErrNotEmpty)
	}, time.Minute, 10*time.Millisecond)
	return err
}

// consumeRound handles n messages, and returns their payloads by subject.
func consumeRound(t *testing.T, set *partition.Set, n int) map[string][]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	got := map[string][]string{}
	require.NoError(t, set.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
		mu.Lock()
		defer mu.Unlock()
		got[m.Subject()] = append(got[m.Subject()], string(m.Data()))
		if n--; n == 0 {
			cancel()
		}
		return nil
	}))
	return got
}

// A member that was cut off while the set was resized does not join again: it and the new members would replace the record of each other for ever.
func TestAResizeWhileAMemberIsCutOff(t *testing.T) {
	s := servertest.RunServer(t)
	js := natstest.JetStream(t, s.Connect(t))
	create(t, js, 4, 1, jetstream.LimitsPolicy)
	set, err := partition.Open(t.Context(), js, "ORDERS", orders(4))
	require.NoError(t, err)
	proxy := natstest.NewProxy(t, s.URL())
	old, err := partition.Load(t.Context(), natstest.JetStream(t, natstest.Connect(t, proxy.URL())), "set")
	require.NoError(t, err)
	_, result := joined(t, old, "old", ignore)
	eventually(t, "it owns all", func() bool { return owners(t, set)["old"] == 4 })
	proxy.Refuse(true)
	proxy.Cut()
	eventually(t, "it does not count as a member", func() bool { return set.Resize(t.Context(), 8) == nil })
	proxy.Refuse(false)
	require.ErrorContains(t, <-result, "with 8 partitions")
	set, err = partition.Open(t.Context(), js, "ORDERS", orders(8))
	require.NoError(t, err)
	publish(t, js, 8, 1)
	require.Len(t, consumeRound(t, set, 8), 8)
}

// Members with different TTLs would remove each other. So the TTL changes only without members, and a member of the former TTL does not join.
func TestAnotherTTL(t *testing.T) {
	js := server(t)
	create(t, js, 4, 1, jetstream.LimitsPolicy)
	set, err := partition.Open(t.Context(), js, "ORDERS", orders(4))
	require.NoError(t, err)
	leave, result := joined(t, set, "m", ignore)
	eventually(t, "it owns all", func() bool { return owners(t, set)["m"] == 4 })
	cfg := orders(4)
	cfg.TTL = 5 * time.Second
	_, err = partition.Open(t.Context(), js, "ORDERS", cfg)
	require.ErrorIs(t, err, partition.ErrHasMembers)
	leave()
	require.NoError(t, <-result)
	_, err = partition.Open(t.Context(), js, "ORDERS", cfg)
	require.NoError(t, err)
	require.ErrorContains(t, set.Consume(t.Context(), ignore), "has a TTL of 5s")
}

// Open of a set with another number of partitions creates no consumer.
func TestOpenWithAnotherNumber(t *testing.T) {
	js := server(t)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*.*"}})
	require.NoError(t, err)
	_, err = partition.Open(t.Context(), js, "ORDERS", orders(4))
	require.NoError(t, err)
	_, err = partition.Open(t.Context(), js, "ORDERS", orders(8))
	require.ErrorContains(t, err, "with 4 partitions")
	stream, err := js.Stream(t.Context(), "ORDERS")
	require.NoError(t, err)
	require.Equal(t, 4, stream.CachedInfo().State.Consumers)
}

func TestResizeRefuses(t *testing.T) {
	js := server(t)
	create(t, js, 4, 1, jetstream.LimitsPolicy)
	set, err := partition.Open(t.Context(), js, "ORDERS", orders(4))
	require.NoError(t, err)
	require.ErrorIs(t, set.Resize(t.Context(), 0), jetpull.ErrInvalidOption)
	_, err = js.Publish(t.Context(), "orders.a", nil)
	require.NoError(t, err)
	require.EqualError(t, set.Resize(t.Context(), 8), fmt.Sprintf(
		"partition: the set is not empty: partition %d has 1 messages pending and 0 not acknowledged; stop the publishers, and let members handle them",
		partition.Of("a", 4)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	handled, result := make(chan struct{}), make(chan error, 1)
	go func() {
		result <- set.Consume(ctx, func(context.Context, *jetpull.Msg) error { close(handled); return nil }, partition.Member("m"))
	}()
	<-handled
	require.EqualError(t, set.Resize(t.Context(), 8), `partition: the set has members: ["m"]; stop them first`)
	cancel()
	require.NoError(t, <-result)
	_, err = js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{Durable: "set-5"})
	require.NoError(t, err)
	require.ErrorContains(t, resize(t, set, 8), `consumer "set-5" on stream "ORDERS" is not of this set`)
	require.NoError(t, js.DeleteConsumer(t.Context(), "ORDERS", "set-2"))
	require.ErrorIs(t, set.Resize(t.Context(), 8), jetstream.ErrConsumerNotFound, "whether it is empty is not known")
	stream, err := js.Stream(t.Context(), "ORDERS")
	require.NoError(t, err)
	require.Contains(t, stream.CachedInfo().Config.SubjectTransform.Destination, "partition(4,1)", "nothing has changed")
}
