package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/partition"
	"github.com/jetpull/jetpull/test/servertest"
)

// Deliveries to members that only handed a message back are no attempts.
func TestHandOversAreNoAttempts(t *testing.T) {
	js := server(t)
	create(t, js, 1, 1, jetstream.LimitsPolicy)
	set, err := partition.Open(t.Context(), js, "ORDERS", orders(1))
	require.NoError(t, err)
	publish(t, js, 1, 2)
	limit := partition.With(jetpull.MaxAttempts(2))
	for n := range 4 {
		running := make(chan struct{})
		leave, result := joined(t, set, fmt.Sprint("m", n), func(ctx context.Context, m *jetpull.Msg) error {
			require.Equal(t, "0", string(m.Data()), "1 waits behind it")
			close(running)
			<-ctx.Done()
			return context.Cause(ctx)
		}, partition.With(jetpull.DrainTimeout(0)))
		<-running
		leave()
		require.NoError(t, <-result)
	}
	var mu sync.Mutex
	calls, events := map[string]int{}, make(chan jetpull.Event, 10)
	leave, result := joined(t, set, "last", func(_ context.Context, m *jetpull.Msg) error {
		mu.Lock()
		defer mu.Unlock()
		calls[string(m.Data())]++
		return jetpull.Retry(0, errors.New("it fails"))
	}, limit, partition.With(jetpull.OnEvent(func(e jetpull.Event) { events <- e })))
	for given := 0; given < 2; {
		if e := <-events; e.Outcome == jetpull.Terminated {
			require.Equal(t, 2, e.Attempt)
			given++
		}
	}
	leave()
	require.NoError(t, <-result)
	require.Equal(t, map[string]int{"0": 2, "1": 2}, calls)
}

// The options that With takes, and those that do not compile, are in the test of all options.
func TestLoggerIsNotNil(t *testing.T) {
	js := server(t)
	create(t, js, 2, 1, jetstream.LimitsPolicy)
	set, err := partition.Open(t.Context(), js, "ORDERS", orders(2))
	require.NoError(t, err)
	err = set.Consume(t.Context(), ignore, partition.Logger(nil))
	require.ErrorIs(t, err, jetpull.ErrInvalidOption)
	require.ErrorContains(t, err, "the logger is nil")
}

// Two sets on one stream, and a consumer of neither, each get all messages.
func TestSetsBesideEachOther(t *testing.T) {
	js := server(t)
	create(t, js, 4, 1, jetstream.LimitsPolicy)
	publish(t, js, 10, 3)
	_, err := js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{Durable: "plain", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	sub, err := jetpull.Subscribe(t.Context(), js, "ORDERS", "plain")
	require.NoError(t, err)
	plain, err := sub.Fetch(t.Context(), 30, jetpull.FillBatch())
	require.NoError(t, err)
	require.Len(t, plain, 30)
	var leaves []func()
	var results []chan error
	tallies := map[string]*tally{"one": newTally(), "two": newTally()}
	sets := map[string]*partition.Set{}
	for name, y := range tallies {
		cfg := orders(4)
		cfg.Name = name
		sets[name], err = partition.Open(t.Context(), js, "ORDERS", cfg)
		require.NoError(t, err)
		for n := range 2 {
			leave, result := joined(t, sets[name], fmt.Sprint("m", n), func(_ context.Context, m *jetpull.Msg) error {
				y.begin(name, m)(true)
				return nil
			})
			leaves, results = append(leaves, leave), append(results, result)
		}
	}
	for _, y := range tallies {
		eventually(t, "all are handled", func() bool { return y.count() == 30 })
	}
	for n, leave := range leaves {
		leave()
		require.NoError(t, <-results[n])
	}
	for name, set := range sets {
		require.Empty(t, tallies[name].bad)
		eventually(t, "deleted", func() bool { return set.Delete(t.Context()) == nil })
	}
	require.NoError(t, jetpull.ConfirmAcks(t.Context(), plain...))
}

// If the record is deleted by another hand, a member ends its handlers when it sees that, not when its lease is over, and joins again.
func TestTheRecordIsDeleted(t *testing.T) {
	js := server(t)
	create(t, js, 1, 1, jetstream.LimitsPolicy)
	cfg := orders(1)
	cfg.TTL = 5 * time.Second
	set, err := partition.Open(t.Context(), js, "ORDERS", cfg)
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "orders.a", nil)
	require.NoError(t, err)
	running, causes := make(chan struct{}, 10), make(chan error, 10)
	leave, result := joined(t, set, "a", func(ctx context.Context, _ *jetpull.Msg) error {
		running <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return context.Cause(ctx)
	}, partition.With(jetpull.DrainTimeout(time.Second)))
	<-running
	kv, err := js.KeyValue(t.Context(), "partition-set")
	require.NoError(t, err)
	begin := time.Now()
	require.NoError(t, kv.Delete(t.Context(), "state"))
	require.ErrorIs(t, <-causes, partition.ErrMembershipLost)
	t.Logf("the handler's context ended after %v", time.Since(begin).Round(time.Millisecond))
	<-running
	require.EqualValues(t, 1, set.Stats().Lost)
	leave()
	require.NoError(t, <-result)
}

// Members hear of each other through a domain too: they share the partitions long before the next heartbeat.
func TestADomain(t *testing.T) {
	js, err := jetstream.NewWithDomain(servertest.RunServer(t, servertest.WithDomain("hub")).Connect(t), "hub")
	require.NoError(t, err)
	create(t, js, 4, 1, jetstream.LimitsPolicy)
	cfg := orders(4)
	cfg.TTL = time.Hour
	set, err := partition.Open(t.Context(), js, "ORDERS", cfg)
	require.NoError(t, err)
	leave, first := joined(t, set, "first", ignore)
	eventually(t, "it owns all", func() bool { return owners(t, set)["first"] == 4 })
	leave2, second := joined(t, set, "second", ignore)
	eventually(t, "shared", func() bool { return owners(t, set)["second"] == 2 })
	leave()
	leave2()
	require.NoError(t, errors.Join(<-first, <-second))
}

// A bucket that was deleted can still have members. After an Open that creates it again, nobody takes a partition before their leases are over.
func TestTheBucketIsCreatedAgain(t *testing.T) {
	js := server(t)
	create(t, js, 1, 1, jetstream.LimitsPolicy)
	cfg := orders(1)
	cfg.TTL = 3 * time.Second
	set, err := partition.Open(t.Context(), js, "ORDERS", cfg)
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "orders.a", nil)
	require.NoError(t, err)
	var mu sync.Mutex
	busy, overlaps, running := 0, 0, make(chan struct{}, 10)
	handler := func(ctx context.Context, _ *jetpull.Msg) error {
		mu.Lock()
		busy++
		overlaps += busy - 1
		mu.Unlock()
		running <- struct{}{}
		<-ctx.Done()
		time.Sleep(200 * time.Millisecond) // it cleans up
		mu.Lock()
		busy--
		mu.Unlock()
		return context.Cause(ctx)
	}
	options := partition.With(jetpull.DrainTimeout(0))
	leave, first := joined(t, set, "first", handler, options)
	<-running
	require.NoError(t, js.DeleteKeyValue(t.Context(), "partition-set"))
	_, err = partition.Open(t.Context(), js, "ORDERS", cfg)
	require.NoError(t, err)
	leave2, second := joined(t, set, "second", handler, options)
	<-running
	leave()
	leave2()
	require.NoError(t, errors.Join(<-first, <-second))
	require.Zero(t, overlaps)
}

// memberPermissions are those of docs/permissions.md without the ones that create, for a set "set" on the stream ORDERS.
func memberPermissions() (publish, subscribe []string) {
	return []string{
		"$JS.API.STREAM.INFO.ORDERS", "$JS.API.CONSUMER.LIST.ORDERS",
		"$JS.API.STREAM.INFO.KV_partition-set", "$JS.API.STREAM.MSG.GET.KV_partition-set", "$KV.partition-set.>",
		"$JS.API.CONSUMER.INFO.ORDERS.*", "$JS.API.CONSUMER.MSG.NEXT.ORDERS.*", "$JS.API.CONSUMER.UNPIN.ORDERS.*", "$JS.API.CONSUMER.RESET.ORDERS.*",
		"$JS.ACK.ORDERS.>",
	}, []string{"_INBOX.>", "$KV.partition-set.>"}
}

// A member needs the permissions that the documentation lists. One that lacks one of them owns nothing, and says which at level warn.
func TestPermissions(t *testing.T) {
	all, hears := memberPermissions()
	quote := func(subjects []string) string { return `["` + strings.Join(subjects, `", "`) + `"]` }
	for _, missing := range []string{
		"", "$JS.API.CONSUMER.UNPIN.ORDERS.*", "$JS.API.CONSUMER.RESET.ORDERS.*", "$JS.API.CONSUMER.MSG.NEXT.ORDERS.*",
		"$JS.ACK.ORDERS.>", "$JS.API.STREAM.MSG.GET.KV_partition-set", "$KV.partition-set.>",
	} {
		t.Run("without "+missing, func(t *testing.T) {
			allowed := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == missing })
			s := servertest.RunServer(t, servertest.WithConfig(fmt.Sprintf(`
				jetstream {}
				authorization { users: [
					{user: admin, password: pw},
					{user: member, password: pw, permissions: {publish: {allow: %s}, subscribe: {allow: %s}}},
				] }`, quote(allowed), quote(hears))))
			admin := natstest.JetStream(t, s.Connect(t, nats.UserInfo("admin", "pw")))
			create(t, admin, 2, 1, jetstream.LimitsPolicy)
			opened, err := partition.Open(t.Context(), admin, "ORDERS", orders(2))
			require.NoError(t, err)
			publish(t, admin, 4, 2)
			var mu sync.Mutex
			var text bytes.Buffer
			log := slog.New(slog.NewTextHandler(lockedWriter{&mu, &text}, &slog.HandlerOptions{Level: slog.LevelWarn}))
			js := natstest.JetStream(t, s.Connect(t, nats.UserInfo("member", "pw"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})))
			set, err := partition.Open(t.Context(), js, "ORDERS", orders(2))
			require.NoError(t, err)
			y := newTally()
			leave, result := joined(t, set, "a", func(_ context.Context, m *jetpull.Msg) error {
				y.begin("a", m)(true)
				return nil
			}, partition.Logger(log))
			if missing == "" {
				eventually(t, "all are handled", func() bool { return y.count() == 8 })
			} else {
				subject := strings.TrimSuffix(strings.TrimSuffix(missing, ">"), "*")
				eventually(t, "the subject is in the log", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return strings.Contains(text.String(), subject)
				})
				require.Equal(t, 2, owners(t, opened)[""])
				require.Zero(t, y.count())
				require.NotZero(t, set.Stats().Refused)
			}
			leave()
			require.NoError(t, <-result)
		})
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}
