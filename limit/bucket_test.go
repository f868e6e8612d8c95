package limit

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// server is a model of a bucket. Links to it are slow, lose requests and answers, and can be cut.
type server struct {
	mu       sync.Mutex
	draw     *rand.Rand
	entries  map[string]entry
	revision uint64
	writes   int
	links    []*link
	loose    bool // plants a bug: every write succeeds
	lossy    int  // percent of requests and answers that are lost
	slow     time.Duration
}

type entry struct {
	jetstream.KeyValueEntry
	key      string
	value    []byte
	revision uint64
}

func (e entry) Key() string                     { return e.key }
func (e entry) Value() []byte                   { return e.value }
func (e entry) Revision() uint64                { return e.revision }
func (e entry) Operation() jetstream.KeyValueOp { return jetstream.KeyValuePut }

func newServer(seed uint64) *server {
	return &server{draw: rand.New(rand.NewPCG(seed, 1)), entries: map[string]entry{}, slow: 2 * time.Millisecond}
}

// put stores a value, as another program could.
func (s *server) put(key string, value []byte) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store(key, value)
}

func (s *server) store(key string, value []byte) uint64 {
	s.revision++
	s.writes++
	e := entry{key: key, value: value, revision: s.revision}
	s.entries[key] = e
	for _, l := range s.links {
		if l.updates != nil && !l.cut && (s.lossy == 0 || s.draw.IntN(100) >= s.lossy) {
			select {
			case l.updates <- e:
			default:
			}
		}
	}
	return s.revision
}

func (s *server) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// link is a process's link to the bucket.
type link struct {
	jetstream.KeyValue
	s       *server
	ttl     time.Duration
	cut     bool          // guarded by server.mu
	stopped chan struct{} // nil, or closed when the process continues; guarded by server.mu
	updates chan jetstream.KeyValueEntry
}

func (s *server) link() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &link{s: s}
	s.links = append(s.links, l)
	return l
}

func (s *server) unlink(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = slices.DeleteFunc(s.links, func(other *link) bool { return other == l })
}

// pause waits while the process is stopped.
func (l *link) pause() {
	for {
		l.s.mu.Lock()
		stopped := l.stopped
		l.s.mu.Unlock()
		if stopped == nil {
			return
		}
		<-stopped
	}
}

// do carries out a request after a delay, and returns after another delay. A lost request may be carried out much later.
func (l *link) do(ctx context.Context, f func() (uint64, error)) (revision uint64, err error) {
	l.pause()
	l.s.mu.Lock()
	up, down := l.s.random(l.s.slow), l.s.random(l.s.slow)
	lost := l.cut || l.s.lossy > 0 && l.s.draw.IntN(100) < l.s.lossy
	late := lost && l.s.draw.IntN(2) == 0
	lostAnswer := l.s.lossy > 0 && l.s.draw.IntN(100) < l.s.lossy
	far := l.s.random(4 * time.Second)
	l.s.mu.Unlock()
	if lost {
		if late {
			time.AfterFunc(far, func() {
				l.s.mu.Lock()
				defer l.s.mu.Unlock()
				_, _ = f()
			})
		}
		<-ctx.Done()
		l.pause()
		return 0, ctx.Err()
	}
	if !sleep(ctx, up) {
		return 0, ctx.Err()
	}
	l.s.mu.Lock()
	revision, err = f()
	l.s.mu.Unlock()
	if lostAnswer {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	if !sleep(ctx, down) {
		return 0, ctx.Err()
	}
	l.pause()
	return revision, err
}

func (s *server) random(d time.Duration) time.Duration {
	return time.Duration(s.draw.Int64N(int64(d) + 1))
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *link) Bucket() string { return "limits" }

type status struct {
	jetstream.KeyValueStatus
	ttl time.Duration
}

func (s status) TTL() time.Duration { return s.ttl }

func (l *link) Status(context.Context) (jetstream.KeyValueStatus, error) {
	return status{ttl: l.ttl}, nil
}

func (l *link) Create(ctx context.Context, key string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	return l.swap(ctx, key, value, 0, jetstream.ErrKeyExists)
}

func (l *link) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return l.swap(ctx, key, value, revision, jetstream.ErrKeyRevisionMismatch)
}

func (l *link) swap(ctx context.Context, key string, value []byte, revision uint64, refused error) (uint64, error) {
	return l.do(ctx, func() (uint64, error) {
		if l.s.entries[key].revision != revision && !l.s.loose {
			return 0, refused
		}
		return l.s.store(key, value), nil
	})
}

func (l *link) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	found := make(chan entry, 1)
	if _, err := l.do(ctx, func() (uint64, error) {
		found <- l.s.entries[key]
		return 0, nil
	}); err != nil {
		return nil, err
	}
	if e := <-found; e.revision > 0 {
		return e, nil
	}
	return nil, jetstream.ErrKeyNotFound
}

type watcher struct {
	jetstream.KeyWatcher
	out chan jetstream.KeyValueEntry
}

func (w watcher) Updates() <-chan jetstream.KeyValueEntry { return w.out }

// Watch delivers stored values to the process while it is not stopped.
func (l *link) Watch(ctx context.Context, keys string, _ ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	if !strings.HasSuffix(keys, ".*") {
		return nil, errors.New("another pattern")
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	in := make(chan jetstream.KeyValueEntry, 1000)
	l.updates = in
	w := watcher{out: make(chan jetstream.KeyValueEntry)}
	go func() {
		for {
			select {
			case e := <-in:
				l.pause()
				select {
				case w.out <- e:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return w, nil
}
