package journal

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// member is a node that competes for shards.
type member struct {
	store *Store
	stop  func()

	mu   sync.Mutex
	held map[int]bool
}

func startMember(t *testing.T, s *Store) *member {
	t.Helper()
	m := &member{store: s, held: map[int]bool{}}
	note := func(shard int, held bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		assert.Equal(t, held, s.Shards.Owns(shard), "shard %d is reported as it is", shard)
		m.held[shard] = held
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Shards.Own(ctx, func(shard int) { note(shard, true) }, func(shard int) { note(shard, false) })
	}()
	m.stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(m.stop)
	return m
}

func (m *member) shards() (held []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for shard, is := range m.held {
		if is {
			held = append(held, shard)
		}
	}
	slices.Sort(held)
	return held
}

var allShards = []int{0, 1, 2, 3, 4, 5, 6, 7}

func shared(t *testing.T, srv *servertest.Server) *Store { return sharedOver(t, srv, srv.Connect(t)) }

func sharedOver(t *testing.T, srv *servertest.Server, nc *nats.Conn) *Store {
	t.Helper()
	s, err := openAs(t.Context(), srv.JetStream(t, nc), Config{Shared: true})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// Two nodes share the shards. A node that leaves hands over all its shards. A shard whose pin the server has withdrawn gets an
// owner again.
func TestShardsHaveOneOwner(t *testing.T) {
	srv := servertest.RunServer(t)
	a, b := startMember(t, shared(t, srv)), startMember(t, shared(t, srv))
	divided := func() bool {
		both := append(a.shards(), b.shards()...)
		slices.Sort(both)
		return slices.Equal(both, allShards)
	}
	require.Eventually(t, divided, 20*time.Second, 5*time.Millisecond, "%v, %v", a.shards(), b.shards())
	for shard := range a.store.Shards.Shards() {
		require.NoError(t, jetpull.Unpin(t.Context(), a.store.js, a.store.cfg.ticks(), "shard_"+strconv.Itoa(shard), "dispatch"))
	}
	require.Eventually(t, divided, 20*time.Second, 5*time.Millisecond, "%v, %v", a.shards(), b.shards())
	a.stop()
	require.Empty(t, a.shards())
	require.Eventually(t, func() bool { return slices.Equal(b.shards(), allShards) }, 20*time.Second, 5*time.Millisecond)
}

// A node gives up a shard only if the server says that it has lost the pin: anybody who may publish in the account can send the notice
// of a node that takes over.
func TestForgedTakeOver(t *testing.T) {
	srv := servertest.RunServer(t, servertest.WithAttackers("broker.x.dispatch"))
	owned, lost := ownAll(t, shared(t, srv))
	attacker := srv.Attacker(t, "broker.x.dispatch")
	for range 300 {
		for shard := -1; shard <= 8; shard++ {
			require.NoError(t, attacker.Publish("broker.x.dispatch", fmt.Appendf(nil, `{"Node":"forged","Shard":%d}`, shard)))
		}
		require.NoError(t, attacker.FlushTimeout(10*time.Second))
		require.Zero(t, lost(), "a shard was given up")
	}
	require.Equal(t, 8, owned())
}

// A link on which an answer takes longer than a hand-over does not make a node give up a shard.
func TestForgedTakeOverOnASlowLink(t *testing.T) {
	srv := servertest.RunServer(t, servertest.WithAttackers("broker.x.dispatch"))
	proxy := natstest.NewProxy(t, srv.URL())
	owned, lost := ownAll(t, sharedOver(t, srv, natstest.Connect(t, proxy.URL())))
	asked := make([]atomic.Int64, 8)
	observer := srv.Connect(t)
	for shard := range asked {
		_, err := observer.Subscribe(fmt.Sprintf("$JS.API.CONSUMER.INFO.*.shard_%d", shard), func(*nats.Msg) { asked[shard].Add(1) })
		require.NoError(t, err)
	}
	require.NoError(t, observer.Flush())
	proxy.Delay(200 * time.Millisecond)
	attacker := srv.Attacker(t, "broker.x.dispatch")
	for round := range int64(3) { // a node asks again only after an answer
		for shard := range asked {
			require.NoError(t, attacker.Publish("broker.x.dispatch", fmt.Appendf(nil, `{"Node":"forged","Shard":%d}`, shard)))
		}
		for shard := range asked {
			require.Eventually(t, func() bool { return asked[shard].Load() > round || lost() > 0 }, time.Minute, time.Millisecond)
		}
		require.Zero(t, lost(), "a shard was given up")
	}
	require.Equal(t, 8, owned())
}

// ownAll returns when a node owns all shards. It returns functions that count the shards that the node owns, and those that it has lost.
func ownAll(t *testing.T, s *Store) (owned func() int, lost func() int64) {
	t.Helper()
	var losses atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Shards.Own(ctx, func(int) {}, func(int) { losses.Add(1) })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	owned = func() (n int) {
		for shard := range s.Shards.Shards() {
			if s.Shards.Owns(shard) {
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return owned() == 8 }, 20*time.Second, time.Millisecond)
	return owned, losses.Load
}

// The next owner of a shard knows the records that its predecessor writes when it hands over.
func TestNextOwnerKnowsWhatIsInProgress(t *testing.T) {
	srv := servertest.RunServer(t)
	first, next := shared(t, srv), shared(t, srv)
	k := makeConsumer(t, first, "ch", "k", domain.Push)
	m := appendMessage(t, first, "ch", "m", 0)
	id := domain.JobID{Seq: m.Seq, Consumer: k.Number}
	shard := first.Shards.Shard("ch")
	ctx, cancel := context.WithCancel(t.Context())
	gained, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		first.Shards.Own(ctx, func(s int) {
			if s == shard {
				close(gained)
			}
		}, func(s int) {
			if s == shard {
				_, err := first.Jobs.PutJob(t.Context(), domain.Job{ID: id, Status: domain.Inflight, Due: time.Now().Add(time.Hour)})
				assert.NoError(t, err)
			}
		})
	}()
	<-gained
	known := make(chan domain.JobStatus, 1)
	nextCtx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		next.Shards.Own(nextCtx, func(s int) {
			if s == shard {
				j, err := next.Jobs.Job(t.Context(), id)
				assert.NoError(t, err)
				known <- j.Status
			}
		}, func(int) {})
	})
	defer running.Wait()
	defer stop()
	cancel()
	<-ended
	require.Equal(t, domain.Inflight, <-known)
	require.Empty(t, next.Index.Queue.Take(k.Number, 10))
}

// A process with an embedded server owns all shards at once.
func TestShardsOfAStoreThatIsNotShared(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	m := startMember(t, s)
	require.Eventually(t, func() bool { return slices.Equal(m.shards(), allShards) }, 10*time.Second, time.Millisecond)
	_, err := s.js.Stream(t.Context(), s.cfg.ticks())
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}
