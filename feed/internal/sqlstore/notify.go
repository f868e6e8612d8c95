package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/jetpull/jetpull/internal/due"
)

const (
	// wakeChannel is the channel of PostgreSQL's NOTIFY.
	wakeChannel = "jetpull_feed"
	// listenPool is the minimum size of a pool from which a connection is kept for listening.
	listenPool = 4
)

// Listen calls f for the changes of all processes until ctx or the connection ends. It keeps a connection of PostgreSQL's pool for that, and replaces
// it when it is old. If the database cannot notify, it returns nil at once. f must not block.
func (s *Store) Listen(ctx context.Context, f func(partition string)) (err error) {
	for aged := true; aged && s.batch && ctx.Err() == nil; {
		young, end := context.WithTimeout(ctx, connectionAge)
		err = listen(young, s, f)
		aged = err != nil && young.Err() != nil
		end()
	}
	return err
}

func listen(ctx context.Context, s *Store, f func(partition string)) error {
	pool, err := s.DB.DB()
	if err != nil {
		return err
	}
	if most := pool.Stats().MaxOpenConnections; most > 0 && most < listenPool {
		return nil
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var failure error
	err = conn.Raw(func(raw any) error {
		pgx, ok := raw.(*stdlib.Conn)
		if !ok { // a driver around pgx, such as one that traces
			failure = errors.New("the connection is not pgx's")
			return driver.ErrBadConn
		}
		conn := pgx.Conn()
		_, failure = conn.Exec(ctx, "LISTEN "+wakeChannel)
		if failure == nil {
			f("") // earlier commits are not notified
		}
		for failure == nil {
			n, err := conn.WaitForNotification(ctx)
			if failure = err; err == nil {
				f(n.Payload)
			}
		}
		return driver.ErrBadConn // a connection that listens must not return to the pool
	})
	return errors.Join(failure, err)
}

// wakeAfter has the delays after which watchers are woken for a change in a caller's transaction. Nothing reports its commit, so they are woken
// several times. If it takes longer, they find the change by polling.
var wakeAfter = []time.Duration{
	5 * time.Millisecond, 25 * time.Millisecond, 125 * time.Millisecond, 625 * time.Millisecond, 3125 * time.Millisecond,
}

const (
	// wakePause is the minimum pause between two of these wake-ups. Each is for all partitions that have changed.
	wakePause = 20 * time.Millisecond
	// notifyTime bounds a NOTIFY, and changesMost the changes that wait for the goroutine that wakes watchers. Polling finds others.
	notifyTime, changesMost = time.Second, 4096
)

// change is a partition that has changed, and the time at which watchers must be woken.
type change struct {
	id string
	at time.Time
}

// wakeAt schedules a wake-up of watchers: on PostgreSQL those of all processes, elsewhere those of this one. PostgreSQL commits only one transaction
// with a NOTIFY at a time, so inserters' transactions have none: they would wait for each other's disk.
func (s *Store) wakeAt(at time.Time, id string) {
	s.waking.Do(func() { s.waiting.Go(func() { wakeLater(s) }) })
	select {
	case s.changes <- change{id, at}:
	default:
	}
}

// wakeLater wakes watchers until the Store is closed, and then for the remaining changes.
func wakeLater(s *Store) {
	var changes due.Heap[string]
	last, timer := time.Time{}, time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case c := <-s.changes:
			changes.Add(c.at, c.id)
		case <-timer.C:
			last = time.Now()
			s.wake(&changes, last)
		case <-s.life.Done():
			for len(s.changes) > 0 {
				changes.Add(time.Time{}, (<-s.changes).id)
			}
			s.wake(&changes, time.Now().Add(time.Hour))
			return
		}
		if at, ok := changes.Next(); ok {
			timer.Reset(max(time.Until(at), time.Until(last.Add(wakePause))))
		}
	}
}

// wake wakes watchers for the changes that are due. It ignores errors, because watchers poll, too.
func (s *Store) wake(changes *due.Heap[string], now time.Time) {
	ids := map[string]struct{}{}
	for id, ok := changes.Pop(now); ok; id, ok = changes.Pop(now) {
		ids[id] = struct{}{}
	}
	if s.Dialect.Name != "postgres" {
		for id := range ids {
			s.Send(id)
		}
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), notifyTime)
	defer cancel()
	for part := range slices.Chunk(slices.Collect(maps.Keys(ids)), renewBatch) {
		// Its commit need not wait for the disk.
		_ = s.DB.WithContext(ctx).Exec("SELECT set_config('synchronous_commit', 'off', true), pg_notify(?, id) FROM partitions WHERE id IN ?",
			wakeChannel, part).Error
	}
}

// Hub passes on wake-ups within the process.
type Hub struct{ subs sync.Map } // by *func(string)

// Subscribe makes Send call f for each partition that was changed. f must not block.
func (h *Hub) Subscribe(f func(partition string)) (cancel func()) {
	h.subs.Store(&f, nil)
	return func() { h.subs.Delete(&f) }
}

// Send calls all subscribers.
func (h *Hub) Send(partition string) {
	h.subs.Range(func(f, _ any) bool {
		(*f.(*func(string)))(partition)
		return true
	})
}
