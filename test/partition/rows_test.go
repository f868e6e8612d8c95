package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/partition"
)

// These tests are about ordinary operation: nothing is killed, stopped or cut in them.

// tally records what handlers of members in this process did.
type tally struct {
	mu   sync.Mutex
	seen map[string][]string // by subject: "MEMBER NUMBER" of each call that began
	done map[string]int      // by subject and number: calls that returned nil
	busy map[string]int
	bad  []string
}

func newTally() *tally {
	return &tally{seen: map[string][]string{}, done: map[string]int{}, busy: map[string]int{}}
}

// begin records that a handler begins, and returns what records its result.
func (y *tally) begin(member string, m *jetpull.Msg) (end func(ok bool)) {
	y.mu.Lock()
	defer y.mu.Unlock()
	key, id := m.Subject(), m.Subject()+" "+string(m.Data())
	y.seen[key] = append(y.seen[key], member+" "+string(m.Data()))
	if y.busy[key]++; y.busy[key] > 1 {
		y.bad = append(y.bad, fmt.Sprintf("%s begins with %s while another handler of its key runs", id, member))
	}
	return func(ok bool) {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.busy[key]--
		if ok {
			y.done[id]++
		}
	}
}

func (y *tally) count() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.done)
}

// joined runs a member until leave is called, and returns its error to result.
func joined(t *testing.T, set *partition.Set, name string, h jetpull.Handler, opts ...partition.Option) (leave func(), result chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result = make(chan error, 1)
	go func() { result <- set.Consume(ctx, h, append(opts, partition.Member(name))...) }()
	return cancel, result
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, time.Minute, 10*time.Millisecond, what)
}

// owners counts the partitions of each member.
func owners(t *testing.T, set *partition.Set) map[string]int {
	t.Helper()
	all, err := set.Status(t.Context())
	require.NoError(t, err)
	count := map[string]int{}
	for _, p := range all {
		count[p.Member]++
	}
	return count
}

// publish stores messages 0..each-1 of each key, by number.
func publish(t *testing.T, js jetstream.JetStream, keys, each int) {
	t.Helper()
	for n := range each {
		for k := range keys {
			_, err := js.Publish(t.Context(), fmt.Sprintf("orders.k%d", k), fmt.Append(nil, n))
			require.NoError(t, err)
		}
	}
}

// A member that leaves gives up what has no running handler at once, while one handler goes on.
func TestALeaveDoesNotWaitForAHandler(t *testing.T) {
	js := server(t)
	create(t, js, 8, 1, jetstream.LimitsPolicy)
	cfg := orders(8)
	cfg.TTL = 30 * time.Second // no other rule moves a partition within the test
	set, err := partition.Open(t.Context(), js, "ORDERS", cfg)
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "orders.slow", nil)
	require.NoError(t, err)
	running, release := make(chan struct{}), make(chan struct{})
	leave, first := joined(t, set, "first", func(context.Context, *jetpull.Msg) error {
		close(running)
		<-release
		return nil
	})
	<-running
	leave2, second := joined(t, set, "second", ignore)
	eventually(t, "shared", func() bool { return owners(t, set)["second"] == 4 })
	leave()
	eventually(t, "all but one moved", func() bool { return owners(t, set)["second"] == 7 })
	require.Equal(t, 1, owners(t, set)["first"])
	close(release)
	require.NoError(t, <-first)
	eventually(t, "all moved", func() bool { return owners(t, set)["second"] == 8 })
	leave2()
	require.NoError(t, <-second)
}

// Handled is what was acknowledged: a message that its handler handed back, that a middleware failed, or that nobody settled, is not lost in
// a hand-over. Those that were acknowledged, or given up, are not handled again.
func TestHandOverAfterAnyResult(t *testing.T) {
	errMiddleware := errors.New("the middleware fails")
	failing := func(next jetpull.Handler) jetpull.Handler {
		return func(ctx context.Context, m *jetpull.Msg) error {
			if err := next(ctx, m); err != nil || string(m.Data()) != "0" {
				return err
			}
			return errMiddleware
		}
	}
	for name, c := range map[string]struct {
		result func(m *jetpull.Msg) error // of the first member for message 0 of each key
		opts   []jetpull.HandlerOption
	}{
		"nak":          {func(m *jetpull.Msg) error { return m.Nak() }, nil},
		"nakWithDelay": {func(m *jetpull.Msg) error { return m.NakWithDelay(time.Second) }, nil},
		"middleware":   {func(*jetpull.Msg) error { return nil }, []jetpull.HandlerOption{jetpull.Use(failing)}},
		"manualAck": {func(*jetpull.Msg) error { return nil }, []jetpull.HandlerOption{
			jetpull.ManualAck(),
			jetpull.DrainTimeout(100 * time.Millisecond),
		}},
		"error": {func(*jetpull.Msg) error { return errMiddleware }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			js := server(t)
			create(t, js, 2, 1, jetstream.LimitsPolicy)
			cfg := orders(2)
			cfg.AckWait = 2 * time.Second
			set, err := partition.Open(t.Context(), js, "ORDERS", cfg)
			require.NoError(t, err)
			const keys, each = 4, 3
			publish(t, js, keys, each)
			y, begun := newTally(), make(chan struct{}, 1000)
			manual := name == "manualAck"
			leave, first := joined(t, set, "first", func(_ context.Context, m *jetpull.Msg) error {
				end := y.begin("first", m)
				defer end(false)
				defer func() { begun <- struct{}{} }()
				if string(m.Data()) == "0" {
					return c.result(m)
				}
				if manual {
					return m.Ack()
				}
				return nil
			}, partition.With(append([]jetpull.HandlerOption{jetpull.Concurrency(4)}, c.opts...)...))
			for range keys {
				<-begun
			}
			leave()
			require.NoError(t, <-first)
			leave, second := joined(t, set, "second", func(_ context.Context, m *jetpull.Msg) error {
				y.begin("second", m)(true)
				return nil
			}, partition.With(jetpull.Concurrency(4)))
			eventually(t, "message 0 of each key is handled", func() bool {
				y.mu.Lock()
				defer y.mu.Unlock()
				for k := range keys {
					if y.done[subject(fmt.Sprintf("k%d", k), 2)+" 0"] == 0 {
						return false
					}
				}
				return true
			})
			eventually(t, "nothing is left", func() bool {
				all, err := set.Status(t.Context())
				return err == nil && !slices.ContainsFunc(all, func(p partition.Partition) bool { return p.Pending+p.AckPending > 0 })
			})
			leave()
			require.NoError(t, <-second)
			require.Empty(t, y.bad)
		})
	}
}

func subject(key string, partitions int) string {
	return fmt.Sprintf("orders.%d.%s", partition.Of(key, partitions), key)
}

// Messages that were acknowledged, terminated or dead-lettered above a message that is held back are not handled again, however many they are.
func TestHandOverRepeatsNothingAboveTheFloor(t *testing.T) {
	js := server(t)
	create(t, js, 1, 1, jetstream.LimitsPolicy)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"dead"}})
	require.NoError(t, err)
	set, err := partition.Open(t.Context(), js, "ORDERS", orders(1))
	require.NoError(t, err)
	const above = 6000
	_, err = js.Publish(t.Context(), "orders.held", []byte("held"))
	require.NoError(t, err)
	for n := range above {
		_, err := js.PublishAsync(fmt.Sprintf("orders.k%d", n%50), fmt.Append(nil, n))
		require.NoError(t, err)
		if n%500 == 499 {
			<-js.PublishAsyncComplete()
		}
	}
	y, refused := newTally(), errors.New("not now")
	handle := func(name string, settled func(m *jetpull.Msg) error) jetpull.Handler {
		return func(_ context.Context, m *jetpull.Msg) error {
			if string(m.Data()) == "held" {
				if name == "first" {
					return jetpull.Retry(10*time.Millisecond, refused)
				}
				y.begin(name, m)(true)
				return nil
			}
			err := settled(m)
			y.begin(name, m)(true)
			return err
		}
	}
	leave, first := joined(t, set, "first", handle("first", func(m *jetpull.Msg) error {
		var n int
		_, _ = fmt.Sscan(string(m.Data()), &n)
		switch n % 100 {
		case 98:
			return jetpull.Terminate("no use", nil)
		case 99:
			return jetpull.HandleJSON(func(context.Context, []int, *jetpull.Msg) error { return nil })(t.Context(), m)
		}
		return nil
	}), partition.With(jetpull.Concurrency(8), jetpull.MaxAttempts(1_000_000), jetpull.DeadLetter("dead")))
	eventually(t, "all but one are handled", func() bool { return y.count() == above })
	leave()
	require.NoError(t, <-first)
	leave, second := joined(t, set, "second", handle("second", func(*jetpull.Msg) error { return nil }))
	eventually(t, "the one that was held back is handled", func() bool { return y.count() == above+1 })
	leave()
	require.NoError(t, <-second)
	for id, n := range y.done {
		require.Equal(t, 1, n, id)
	}
	require.Empty(t, y.bad)
}

// A handler that fails in any way while its member leaves has its message handed back at once, whatever RetryDelays says. So the next member repeats
// no message that was acknowledged.
func TestAFailureInAHandOverRepeatsNothing(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context) error{
		"error":          func(context.Context) error { return errors.New("not now") },
		"panic":          func(context.Context) error { panic("not now") },
		"HandlerTimeout": func(ctx context.Context) error { <-ctx.Done(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			js := server(t)
			create(t, js, 1, 1, jetstream.LimitsPolicy)
			set, err := partition.Open(t.Context(), js, "ORDERS", orders(1))
			require.NoError(t, err)
			_, err = js.Publish(t.Context(), "orders.fails", []byte("0"))
			require.NoError(t, err)
			publish(t, js, 4, 3)
			y, left := newTally(), make(chan struct{})
			leave, first := joined(t, set, "first", func(ctx context.Context, m *jetpull.Msg) error {
				if strings.HasSuffix(m.Subject(), ".fails") {
					<-left
					return fail(ctx)
				}
				y.begin("first", m)(true)
				return nil
			}, partition.With(jetpull.Concurrency(2), jetpull.RetryDelays(3*time.Second), jetpull.HandlerTimeout(2*time.Second)))
			eventually(t, "the others are acknowledged", func() bool {
				all, err := set.Status(t.Context())
				return err == nil && y.count() == 12 && all[0].AckPending == 1
			})
			leave()
			close(left)
			require.NoError(t, <-first)
			leave, second := joined(t, set, "second", func(_ context.Context, m *jetpull.Msg) error {
				y.begin("second", m)(true)
				return nil
			})
			eventually(t, "it is handled", func() bool { return y.count() == 13 })
			leave()
			require.NoError(t, <-second)
			for id, n := range y.done {
				require.Equal(t, 1, n, id)
			}
			require.Zero(t, set.Stats().Resets)
		})
	}
}

// A stream that is deleted and created again under its name begins anew: what was known of the old one does not settle its messages.
func TestAStreamIsRecreated(t *testing.T) {
	js := server(t)
	y := newTally()
	for round := range 2 {
		create(t, js, 2, 1, jetstream.LimitsPolicy)
		set, err := partition.Open(t.Context(), js, "ORDERS", orders(2))
		require.NoError(t, err)
		for n := range 50 {
			_, err := js.Publish(t.Context(), fmt.Sprintf("orders.k%d", n), fmt.Append(nil, round))
			require.NoError(t, err)
		}
		held := subject("k0", 2)
		leave, result := joined(t, set, fmt.Sprint("m", round), func(_ context.Context, m *jetpull.Msg) error {
			if m.Subject() == held && round == 0 {
				return errors.New("it holds the floor back")
			}
			y.begin("m", m)(true)
			return nil
		}, partition.With(jetpull.Concurrency(4)))
		want := 49
		if round == 1 {
			want = 99
		}
		eventually(t, "all are handled", func() bool { return y.count() == want })
		leave()
		require.NoError(t, <-result)
		if round == 0 {
			require.NoError(t, js.DeleteStream(t.Context(), "ORDERS"))
		}
	}
}

// Open refuses a stream from which nothing can arrive.
func TestOpenRefusesWhatCannotArrive(t *testing.T) {
	js := server(t)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KEPT"}) // a server that deletes its last stream may fail to store the next one
	require.NoError(t, err)
	transform := func(destination string) *jetstream.SubjectTransformConfig {
		return &jetstream.SubjectTransformConfig{Source: "x.*", Destination: destination}
	}
	all := &jetstream.SubjectTransformConfig{Source: ">", Destination: "z.>"}
	number := 0
	for name, c := range map[string]struct {
		subjects  []string
		transform *jetstream.SubjectTransformConfig
		pattern   string
		publish   string
		text      string
	}{
		"no token":      {[]string{"x.*"}, nil, "x.{partition}.*", "", "no message has a partition there"},
		"more tokens":   {[]string{"x.*.*.*"}, nil, "x.{partition}.*", "", "no message has a partition there"},
		"fewer tokens":  {[]string{"x.*.*"}, nil, "x.{partition}.*.>", "", "no message has a partition there"},
		"other token":   {[]string{"x.*"}, transform("x.{{wildcard(1)}}.{{partition(4,1)}}"), "x.{partition}.*", "", "{partition} at that place"},
		"other literal": {[]string{"x.*.*"}, nil, "y.{partition}.*", "", "no message has a partition there"},
		"real subject":  {[]string{"x.>"}, nil, "x.{partition}.*", "x.berlin.a", `"x.berlin.a"`},
		"out of range":  {[]string{"x.>"}, nil, "x.{partition}.*", "x.4.a", `"x.4.a"`},
		"not canonical": {[]string{"x.>"}, nil, "x.{partition}.*", "x.01.a", `"x.01.a"`},
		"real, shorter": {[]string{"x.>"}, nil, "x.{partition}.*", "x.a", `"x.a"`},
		"elsewhere":     {[]string{"x.>"}, all, "x.{partition}.*", "", "no message has a partition there"},
		"good, all":     {[]string{"x.>"}, all, "z.x.{partition}.*", "x.3.a", ""},
		"good, others":  {[]string{"x.*", "y.*.*"}, transform("z.{{wildcard(1)}}"), "y.{partition}.*", "y.3.a", ""},
		"good":          {[]string{"x.>"}, nil, "x.{partition}.*", "x.3.a", ""},
		"good, empty":   {[]string{"x.>"}, nil, "x.{partition}.*", "", ""},
		"good, added":   {[]string{"x.*"}, transform("x.{{partition(4,1)}}.{{wildcard(1)}}"), "x.{partition}.*", "x.a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			number++
			stream := fmt.Sprint("X", number)
			_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: c.subjects, SubjectTransform: c.transform})
			require.NoError(t, err)
			defer func() { require.NoError(t, js.DeleteStream(t.Context(), stream)) }()
			if c.publish != "" {
				_, err := js.Publish(t.Context(), c.publish, nil)
				require.NoError(t, err)
			}
			set, err := partition.Open(t.Context(), js, stream, partition.Config{Name: "s", Partitions: 4, Subject: c.pattern})
			if c.text == "" {
				require.NoError(t, err)
				require.NoError(t, set.Delete(t.Context()))
				return
			}
			require.ErrorContains(t, err, c.text)
			require.ErrorIs(t, err, jetpull.ErrInvalidOption)
		})
	}
}

// A stream can have messages of other streams beside its own, and a message without a partition does not stop a set that exists.
func TestOpenAccepts(t *testing.T) {
	js := server(t)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "SOURCE", Subjects: []string{"orders.*.*"}})
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"other"}, Sources: []*jetstream.StreamSource{{Name: "SOURCE"}},
	})
	require.NoError(t, err)
	_, err = partition.Open(t.Context(), js, "ORDERS", orders(4))
	require.NoError(t, err)
	for _, subject := range []string{"orders.1.a", "orders.99.a"} {
		_, err = js.Publish(t.Context(), subject, nil)
		require.NoError(t, err)
	}
	eventually(t, "both are there", func() bool {
		stream, err := js.Stream(t.Context(), "ORDERS")
		return err == nil && stream.CachedInfo().State.Msgs == 2
	})
	set, err := partition.Open(t.Context(), js, "ORDERS", orders(4))
	require.NoError(t, err)
	require.Len(t, consumeRound(t, set, 1), 1)
}

// Open creates all consumers or none.
func TestOpenCreatesAllConsumersOrNone(t *testing.T) {
	js := server(t)
	transform := partition.Transform(8, "orders.*")
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"orders.*"}, SubjectTransform: &transform,
		MaxConsumers: 5,
	})
	require.NoError(t, err)
	_, err = partition.Open(t.Context(), js, "ORDERS", orders(8))
	require.ErrorContains(t, err, "maximum consumers limit")
	stream, err := js.Stream(t.Context(), "ORDERS")
	require.NoError(t, err)
	require.Zero(t, stream.CachedInfo().State.Consumers)
}

// Records that are no records are ignored, whoever wrote them: the set goes on, and so do its commands.
func TestBadRecords(t *testing.T) {
	js := server(t)
	create(t, js, 4, 1, jetstream.LimitsPolicy)
	set, err := partition.Open(t.Context(), js, "ORDERS", orders(4))
	require.NoError(t, err)
	kv, err := js.KeyValue(t.Context(), "partition-set")
	require.NoError(t, err)
	junk := func() {
		status, err := kv.Keys(t.Context())
		if !errors.Is(err, jetstream.ErrNoKeysFound) {
			require.NoError(t, err)
		}
		for _, key := range status {
			_, err := kv.Put(t.Context(), key, []byte("not json"))
			require.NoError(t, err)
		}
		for key, value := range map[string]string{
			"partition.0": "not json", "partition.01": `{"member":"x","incarnation":"y"}`, "partition.2": `{"released_by":"a","done":[1,2,3,4,5,6,7,8,9,10]}`,
			"member.ghost": `{"incarnation":"i","ttl_ns":9000000000000000000}`, "member.junk": "not json", "state": `{"owners":[{"m":"ghost"}]}`, "other": "",
		} {
			_, err := kv.Put(t.Context(), key, []byte(value))
			require.NoError(t, err)
		}
	}
	junk()
	y := newTally()
	leave, result := joined(t, set, "a", func(_ context.Context, m *jetpull.Msg) error {
		y.begin("a", m)(true)
		return nil
	})
	publish(t, js, 8, 3)
	eventually(t, "all are handled", func() bool { return y.count() == 24 })
	junk()
	eventually(t, "it owns all again", func() bool { return owners(t, set)["a"] == 4 })
	_, err = js.Publish(t.Context(), "orders.k1", []byte("3"))
	require.NoError(t, err)
	eventually(t, "all are handled", func() bool { return y.count() == 25 })
	leave()
	require.NoError(t, <-result)
	require.Empty(t, y.bad)
	eventually(t, "it can be deleted", func() bool { return set.Delete(t.Context()) == nil })
}
