package partition

import (
	"context"
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

func orders(partitions int) partition.Config {
	return partition.Config{Name: "set", Partitions: partitions, Subject: "orders.{partition}.*", TTL: time.Second}
}

func ignore(context.Context, *jetpull.Msg) error { return nil }

func server(t *testing.T) jetstream.JetStream {
	t.Helper()
	return natstest.JetStream(t, servertest.RunServer(t).Connect(t))
}

// Invalid input is refused by name, with what to do.
func TestOpenRefuses(t *testing.T) {
	js := server(t)
	create(t, js, 4, 1, jetstream.LimitsPolicy)
	for name, stream := range map[string]jetstream.StreamConfig{
		"PLAIN":    {Subjects: []string{"plain.fixed.*"}},
		"INTEREST": {Subjects: []string{"interest.*.*"}, Retention: jetstream.InterestPolicy},
	} {
		stream.Name = name
		_, err := js.CreateStream(t.Context(), stream)
		require.NoError(t, err)
	}
	for text, refused := range map[string]struct {
		stream string
		change func(*partition.Config)
	}{
		`Name "a.b"`:                  {"ORDERS", func(c *partition.Config) { c.Name = "a.b" }},
		"Partitions 0":                {"ORDERS", func(c *partition.Config) { c.Partitions = 0 }},
		"Partitions 1025":             {"ORDERS", func(c *partition.Config) { c.Partitions = 1025 }},
		`one token {partition}`:       {"ORDERS", func(c *partition.Config) { c.Subject = "orders.*" }},
		"MaxAckPending -1":            {"ORDERS", func(c *partition.Config) { c.MaxAckPending = -1 }},
		"AckWait 1ms":                 {"ORDERS", func(c *partition.Config) { c.AckWait = time.Millisecond }},
		"TTL 500ms":                   {"ORDERS", func(c *partition.Config) { c.TTL = 500 * time.Millisecond }},
		`makes 4 of them`:             {"ORDERS", func(c *partition.Config) { c.Partitions = 8 }},
		"no message has a partition":  {"PLAIN", func(c *partition.Config) { c.Subject = "plain.{partition}.*" }},
		"interest retention and no":   {"INTEREST", func(c *partition.Config) { c.Subject = "interest.{partition}.*" }},
		`stream "NONE": nats: API`:    {"NONE", func(*partition.Config) {}},
		`stores ["orders.{{partition`: {"ORDERS", func(c *partition.Config) { c.Subject = "other.{partition}.*" }},
	} {
		cfg := orders(4)
		refused.change(&cfg)
		_, err := partition.Open(t.Context(), js, refused.stream, cfg)
		require.ErrorContains(t, err, text)
	}
	_, err := partition.Open(t.Context(), js, "ORDERS", orders(4))
	require.NoError(t, err)
	_, err = partition.Open(t.Context(), js, "ORDERS", orders(4))
	require.NoError(t, err, "it is adopted")
	other := orders(4)
	other.Subject = "orders.{partition}.>"
	_, err = partition.Open(t.Context(), js, "ORDERS", other)
	require.ErrorIs(t, err, jetpull.ErrInvalidOption)
	_, err = partition.Load(t.Context(), js, "none")
	require.ErrorIs(t, err, jetstream.ErrBucketNotFound)
}

func TestConsumeRefuses(t *testing.T) {
	js := server(t)
	create(t, js, 4, 1, jetstream.LimitsPolicy)
	set, err := partition.Open(t.Context(), js, "ORDERS", orders(4))
	require.NoError(t, err)
	require.ErrorIs(t, set.Consume(t.Context(), nil), jetpull.ErrInvalidOption)
	require.ErrorIs(t, set.Consume(t.Context(), ignore, nil), jetpull.ErrInvalidOption)
	require.ErrorIs(t, set.Consume(t.Context(), ignore, partition.Member("a b")), jetpull.ErrInvalidOption)
	require.ErrorIs(t, set.Consume(t.Context(), ignore, partition.OnAssign(nil)), jetpull.ErrInvalidOption)
	require.ErrorIs(t, set.Consume(t.Context(), ignore, partition.With(jetpull.Concurrency(-1))), jetpull.ErrInvalidOption)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, set.Consume(ended, ignore))
	require.NoError(t, set.Delete(t.Context()))
}

// Two members may have one name; a set with members is not deleted; the bucket and the consumers are missed when they are gone.
func TestMembersAndWhatIsGone(t *testing.T) {
	js := server(t)
	create(t, js, 4, 1, jetstream.LimitsPolicy)
	set, err := partition.Open(t.Context(), js, "ORDERS", orders(4))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	assigned := make(chan int, 8)
	result := make(chan error, 1)
	wg.Go(func() {
		result <- set.Consume(ctx, ignore, partition.Member("a"), partition.OnAssign(func(n int, _ string) { assigned <- n }))
	})
	for range 4 {
		<-assigned
	}
	require.Equal(t, 4, set.Stats().Owned)
	leave, other := joined(t, set, "a", ignore, partition.OnAssign(func(n int, _ string) { assigned <- n }))
	<-assigned
	<-assigned
	require.ErrorContains(t, set.Delete(t.Context()), `the set has members: ["a" "a"]`)
	leave()
	require.NoError(t, <-other)
	<-assigned
	<-assigned
	require.ErrorIs(t, set.Delete(t.Context()), partition.ErrHasMembers)
	all, err := set.Status(t.Context())
	require.NoError(t, err)
	for n, p := range all {
		require.Equal(t, "a", p.Member)
		require.Equal(t, n, p.Number)
		require.WithinDuration(t, time.Now(), p.Since, time.Minute)
	}
	require.NoError(t, js.DeleteConsumer(t.Context(), "ORDERS", "set-2"))
	require.ErrorContains(t, <-result, "set-2")
	wg.Wait()

	set, err = partition.Open(t.Context(), js, "ORDERS", orders(4))
	require.NoError(t, err, "it creates the consumer again")
	wg.Go(func() {
		result <- set.Consume(ctx, ignore, partition.OnAssign(func(n int, _ string) { assigned <- n }))
	})
	for range 4 {
		<-assigned
	}
	require.NoError(t, js.DeleteKeyValue(t.Context(), "partition-set"))
	err = <-result
	require.ErrorContains(t, err, "bucket")
	t.Log(err)
	_, err = set.Status(t.Context())
	require.ErrorContains(t, err, "bucket")
}

// The publisher's hash is the server's.
func TestOfIsTheServersHash(t *testing.T) {
	js := server(t)
	create(t, js, 7, 1, jetstream.LimitsPolicy)
	for n := range 50 {
		key := fmt.Sprint("customer-", n)
		_, err := js.Publish(t.Context(), "orders."+key, nil)
		require.NoError(t, err)
		stream, err := js.Stream(t.Context(), "ORDERS")
		require.NoError(t, err)
		m, err := stream.GetMsg(t.Context(), uint64(n+1))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("orders.%d.%s", partition.Of(key, 7), key), m.Subject)
	}
}

// A handler that ignores the end of its context keeps its partition: no other member gets it before the handler has returned. A
// middleware of the member changes nothing of that.
func TestAHandlerThatDoesNotReturnKeepsItsPartition(t *testing.T) {
	for name, opts := range map[string][]jetpull.HandlerOption{
		"alone":             nil,
		"with a middleware": {jetpull.Use(func(next jetpull.Handler) jetpull.Handler { return next })},
	} {
		t.Run(name, func(t *testing.T) { doesNotReturn(t, partition.With(opts...), partition.With(jetpull.DrainTimeout(0))) })
	}
}

func doesNotReturn(t *testing.T, opts ...partition.Option) {
	t.Helper()
	js := server(t)
	create(t, js, 1, 1, jetstream.LimitsPolicy)
	set, err := partition.Open(t.Context(), js, "ORDERS", orders(1))
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "orders.a", nil)
	require.NoError(t, err)
	first, stop := context.WithCancel(t.Context())
	defer stop()
	second, end := context.WithCancel(t.Context())
	defer end()
	cancelled, release, assigned := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	results := make(chan error, 2)
	go func() {
		results <- set.Consume(first, func(ctx context.Context, _ *jetpull.Msg) error {
			stop()
			<-ctx.Done()
			close(cancelled)
			<-release
			return nil
		}, append(opts, partition.Member("first"))...)
	}()
	<-cancelled
	go func() {
		results <- set.Consume(second, func(context.Context, *jetpull.Msg) error {
			t.Error("the message was handled")
			return nil
		}, partition.Member("second"), partition.OnAssign(func(_ int, why string) { assigned <- why }))
	}()
	require.Eventually(t, func() bool { // the first is a member for longer than its TTL
		all, err := set.Status(t.Context())
		return err == nil && all[0].Member == "first" && time.Since(all[0].Since) > 2*time.Second
	}, time.Minute, 50*time.Millisecond)
	require.Empty(t, assigned)
	close(release)
	require.Equal(t, "member first released it", <-assigned)
	require.NoError(t, <-results)
	end()
	require.NoError(t, <-results)
}

// A process that restarts with the name of one that was killed gets its partitions after the TTL, also if another member removes that one.
func TestANameIsFreeAfterTheTTL(t *testing.T) {
	s := servertest.RunServer(t)
	js := natstest.JetStream(t, s.Connect(t))
	create(t, js, 2, 1, jetstream.LimitsPolicy)
	set, err := partition.Open(t.Context(), js, "ORDERS", orders(2))
	require.NoError(t, err)
	nc := s.Connect(t)
	dying, err := partition.Load(t.Context(), natstest.JetStream(t, nc), "set")
	require.NoError(t, err)
	assigned := make(chan string, 100)
	result := make(chan error, 1)
	consume := func(ctx context.Context, set *partition.Set) {
		result <- set.Consume(ctx, ignore, partition.Member("a"), partition.OnAssign(func(_ int, why string) { assigned <- why }))
	}
	go consume(t.Context(), dying)
	<-assigned
	<-assigned
	nc.Close() // as a crash: nothing is released
	require.Error(t, <-result)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go consume(ctx, set)
	require.Equal(t, "member a is gone without releasing it", <-assigned)
	require.Equal(t, "member a is gone without releasing it", <-assigned)
	cancel()
	require.NoError(t, <-result)

	owns := func(n int) bool { return owners(t, set)["a"] == n }
	leave, other := joined(t, set, "b", ignore)
	defer leave()
	for range 5 {
		nc = s.Connect(t)
		dying, err = partition.Load(t.Context(), natstest.JetStream(t, nc), "set")
		require.NoError(t, err)
		go consume(t.Context(), dying)
		eventually(t, "it shares the partitions", func() bool { return owns(1) })
		nc.Close()
		require.Error(t, <-result)
		ctx, cancel := context.WithCancel(t.Context())
		go consume(ctx, set)
		eventually(t, "the name is free", func() bool { return owns(1) && set.Stats().Owned == 2 })
		cancel()
		require.NoError(t, <-result)
		for len(assigned) > 0 {
			<-assigned
		}
	}
	leave()
	require.NoError(t, <-other)
}
