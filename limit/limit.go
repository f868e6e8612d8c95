package limit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/jetpull/jetpull/internal/lease"
)

// The errors of a Limiter, for use with [errors.Is].
var (
	// ErrClosed says that the Limiter was closed, or was not returned by Open.
	ErrClosed = errors.New("limit: the limiter is closed")
	// ErrConfig says that the limit was opened with another Config.
	ErrConfig = errors.New("limit: another configuration")
	// ErrLost is the cause with which a context of [Limiter.Context] ends when other processes may run handlers of the key instead of this process:
	// it stored nothing within the TTL, because it was stopped or could not reach the bucket, or the key's record was deleted.
	ErrLost = errors.New("limit: the right to run a handler of the key was lost")
)

// Limiter is this process's part of a limit. Its methods may be called from any number of goroutines.
type Limiter struct {
	kv    jetstream.KeyValue
	name  string
	cfg   Config
	ttl   time.Duration // of the bucket; 0: none
	id    string
	clock func() lease.Moment
	ctx   context.Context // for all requests
	stop  context.CancelFunc
	open  context.Context // until Close
	shut  context.CancelFunc
	tasks sync.WaitGroup // run of each key, and follow

	mu     sync.Mutex        // guards the fields below, and all keys
	keys   map[string]*state // by their key in the bucket
	warned time.Duration     // when the last warning about the bucket was logged
}

func (l *Limiter) closing() bool { return l.open.Err() != nil }

// Open opens the limit of a name, 1 to 64 letters, digits, '-' and '_'. All processes that open it in the same bucket share it. Several limits may
// share a bucket. The bucket's TTL must be 0, or at least twice the sum of Window and TTL. It deletes the records of keys that nobody uses any more.
//
// Open returns [ErrConfig], with both configurations, if the limit was opened with another one. To change it, open a limit with another name, or
// end all processes and purge the name's keys, NAME.>.
func Open(ctx context.Context, kv jetstream.KeyValue, name string, c Config) (*Limiter, error) {
	l, err := prepare(ctx, kv, name, c)
	if err != nil {
		return nil, err
	}
	l.tasks.Go(l.follow)
	return l, nil
}

// prepare returns a Limiter that does not follow the bucket yet.
func prepare(ctx context.Context, kv jetstream.KeyValue, name string, c Config) (*Limiter, error) {
	if err := cmp.Or(
		c.complete(),
		errorIf(ctx == nil, "the context is nil"),
		errorIf(kv == nil, "the bucket is nil; give one of jetstream.JetStream"),
		errorIf(!validName(name), "name %q: use 1 to 64 letters, digits, '-' and '_'", name),
	); err != nil {
		return nil, err
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("limit: bucket %q: %w", kv.Bucket(), err)
	}
	if least := 2 * (c.Window + c.TTL); status.TTL() != 0 && status.TTL() < least {
		return nil, fmt.Errorf("limit: bucket %q has a TTL of %v, so records go before their time; give it %v or more, or none",
			kv.Bucket(), status.TTL(), least)
	}
	l := &Limiter{kv: kv, name: name, cfg: c, ttl: status.TTL(), id: nuid.Next(), clock: lease.Now, keys: map[string]*state{}}
	if err := l.configure(ctx); err != nil {
		return nil, err
	}
	l.ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.open, l.shut = context.WithCancel(l.ctx)
	return l, nil
}

// configure stores or renews the configuration, so that the bucket keeps it as long as the limit is used. If another is stored, it returns ErrConfig.
func (l *Limiter) configure(ctx context.Context) error {
	text, _ := json.Marshal(l.cfg) // all its values have a form in JSON
	_, err := l.kv.Create(ctx, configKey(l.name), text)
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return wrap(err, "store the configuration of "+l.name)
	}
	entry, err := l.kv.Get(ctx, configKey(l.name))
	if err != nil {
		return wrap(err, "read the configuration of "+l.name)
	}
	var other Config
	if err := json.Unmarshal(entry.Value(), &other); err != nil || other.complete() != nil {
		return fmt.Errorf("limit: the key %q of bucket %q has no configuration: %.200q; purge it", configKey(l.name), l.kv.Bucket(), entry.Value())
	}
	if other != l.cfg {
		return fmt.Errorf("%w: limit %q of bucket %q has %v, not %v; open it as it is, or another name", ErrConfig, l.name, l.kv.Bucket(), &other, &l.cfg)
	}
	_, err = l.kv.Update(ctx, configKey(l.name), text, entry.Revision())
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return nil // another process has renewed it
	}
	return wrap(err, "renew the configuration of "+l.name)
}

func wrap(err error, what string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("limit: %s: %w", what, err)
}

// Acquire waits until a handler of the key may begin. The key can be any string. The handler must begin at once, and call release when it has ended.
// Further calls of release do nothing. Acquire returns the cause of ctx if ctx ends first, and [ErrClosed] after Close. While the bucket cannot be
// reached, only the handlers that this process has already reserved may begin.
func (l *Limiter) Acquire(ctx context.Context, key string) (release func(), err error) {
	err = l.use(key, func(k *state) error {
		if now := l.clock().Mono; ctx.Err() == nil && len(k.waiters) == 0 && l.ready(k, now) {
			release = l.begin(k, now)
			return nil
		}
		return l.await(ctx, k, func(now time.Duration) { release = l.begin(k, now) })
	})
	return release, err
}

// TryAcquire is Acquire for a caller that cannot wait. A nil release means that no handler of the key may begin now: try again after [Limiter.Await].
func (l *Limiter) TryAcquire(key string) (release func(), err error) {
	err = l.use(key, func(k *state) error {
		if now := l.clock().Mono; (k.offer != nil || k.free(&l.cfg) > len(k.waiters)) && l.ready(k, now) {
			release = l.begin(k, now)
		}
		k.endOffer(k.offer)
		return nil
	})
	return release, err
}

// Await waits until TryAcquire can succeed for one more caller. Callers that wait for a key get their turns one after the other. Await returns the
// errors of Acquire.
func (l *Limiter) Await(ctx context.Context, key string) error {
	return l.use(key, func(k *state) error {
		return l.await(ctx, k, func(time.Duration) {
			var offer *time.Timer // not ended by run, which may wait for the bucket
			offer = time.AfterFunc(offerLasts, func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				k.endOffer(offer)
			})
			k.offer = offer
		})
	})
}

// use calls f, which holds l.mu, with the state of a key. It returns [ErrClosed] after Close.
func (l *Limiter) use(key string, f func(*state) error) error {
	if l == nil || l.kv == nil {
		return ErrClosed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing() {
		return ErrClosed
	}
	return f(l.stateOf(key))
}

// Context returns a copy of ctx for a handler that has begun after Acquire. The copy also ends, with the cause [ErrLost], when other processes may
// run handlers instead of those of this process. A handler that ignores this can run at the same time as theirs. Without Concurrent, Context returns
// ctx itself. A nil ctx counts as one that does not end.
func (l *Limiter) Context(ctx context.Context, key string) (context.Context, context.CancelFunc) {
	if ctx == nil {
		ctx = context.Background()
	}
	if l == nil || l.cfg.Concurrent == 0 {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	lost := func() { cancel(ErrLost) }
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.keys[bucketKey(l.name, key)]; k != nil && k.valid() {
		unlink := context.AfterFunc(k.lease, lost)
		return ctx, func() { unlink(); cancel(nil) }
	}
	lost()
	return ctx, lost
}

// Close ends all calls of Acquire and Await, waits until all handlers that have begun are released, and gives back what this process has reserved. If
// ctx ends first, Close returns its cause, and other processes get the rest after the TTL. A nil ctx counts as one that does not end.
func (l *Limiter) Close(ctx context.Context) error {
	if l == nil || l.kv == nil {
		return nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	l.mu.Lock()
	l.shut()
	for _, k := range l.keys {
		wake(k.woken)
	}
	l.mu.Unlock()
	defer l.stop()
	inTime := context.AfterFunc(ctx, l.stop)
	l.tasks.Wait()
	if !inTime() {
		return context.Cause(ctx)
	}
	return nil
}

// follow watches the records that other processes write, so that a process that waits need not poll, and renews the configuration. If the watcher
// misses a record, the next renewal of the key reads it.
func (l *Limiter) follow() {
	look, renewed := time.Tick(l.cfg.TTL), time.Now()
	updates, end := l.watch()
	for {
		select {
		case <-l.open.Done():
			end()
			return
		case entry, ok := <-updates:
			if !ok {
				updates = nil
			} else if entry != nil {
				l.seen(entry)
			}
		case <-look:
			if updates == nil {
				end()
				updates, end = l.watch()
			}
			if l.ttl == 0 || time.Since(renewed) < l.ttl/renewals {
				continue
			}
			ctx, cancel := context.WithTimeout(l.ctx, l.cfg.TTL/renewals)
			if err := l.configure(ctx); err == nil {
				renewed = time.Now()
			} else if errors.Is(err, ErrConfig) {
				slog.Warn("limit: processes use one limit with different configurations", "error", err)
			}
			cancel()
		}
	}
}

func (l *Limiter) watch() (<-chan jetstream.KeyValueEntry, context.CancelFunc) {
	ctx, cancel := context.WithCancel(l.ctx)
	late := time.AfterFunc(l.cfg.TTL/renewals, cancel)
	w, err := l.kv.Watch(ctx, l.name+".*", jetstream.UpdatesOnly())
	if late.Stop(); err != nil {
		slog.Warn("limit: the bucket cannot be watched, so callers wait longer than they have to", "bucket", l.kv.Bucket(), "error", err)
		return nil, cancel
	}
	return w.Updates(), cancel
}
