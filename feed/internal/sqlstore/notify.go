package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// wakeChannel is the channel of PostgreSQL's NOTIFY.
	wakeChannel = "jetpull_feed"
	// listenPool is how many connections a pool must be allowed for one to be kept for listening.
	listenPool = 4
)

// Listen keeps a connection of PostgreSQL's pool for notifications, and takes another one when it is old.
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
		pg, ok := raw.(*stdlib.Conn)
		if !ok {
			failure = errors.New("the connection is not pgx's")
			return driver.ErrBadConn
		}
		_, failure = pg.Conn().Exec(ctx, "LISTEN "+wakeChannel)
		if failure == nil {
			f("") // what was committed before is not notified
		}
		for failure == nil {
			n, err := pg.Conn().WaitForNotification(ctx)
			if failure = err; err == nil {
				f(n.Payload)
			}
		}
		return driver.ErrBadConn // nobody else shall have a connection that listens
	})
	return errors.Join(failure, err)
}

// notifyAfter is when other processes are notified after a change in a transaction of a caller. Nobody reports its commit, so they are notified
// several times: of one that takes longer than this altogether, they learn by polling.
var notifyAfter = []time.Duration{
	5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
	2500 * time.Millisecond,
}

const (
	// notifyPause is the least pause between two notifications, each of which is of all partitions that have changed.
	notifyPause = 20 * time.Millisecond
	// notifyTime bounds one, and notifyMost how many changes wait for it; others are found by polling.
	notifyTime, notifyMost = time.Second, 4096
)

// change is a partition that has changed, in a transaction that has committed or is still to commit.
type change struct {
	id        string
	committed bool
}

// notice is when other processes are notified of a partition, and how often they were.
type notice struct {
	at time.Time
	n  int
}

// changed has other processes of a PostgreSQL database notified of a change. PostgreSQL commits one transaction with a NOTIFY at a time, so the
// transactions of inserters have none: they would wait for each other's disk.
func (s *Store) changed(id string, committed bool) {
	if s.Dialect.Name != "postgres" {
		return
	}
	s.notifies.Do(func() { s.waiting.Go(func() { notifyAll(s) }) })
	select {
	case s.changes <- change{id, committed}:
	default:
	}
}

// notifyAll notifies other processes until the Store is closed, and then of what is left.
func notifyAll(s *Store) {
	notices, last := map[string]notice{}, time.Time{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case c := <-s.changes:
			known, ok := notices[c.id]
			next := notice{at: time.Now()}
			if next.n = len(notifyAfter); !c.committed {
				next = notice{at: next.at.Add(notifyAfter[0])}
			}
			if ok { // the sooner of the two, and as often as either needs it
				next.n = min(next.n, known.n)
				if known.at.Before(next.at) {
					next.at = known.at
				}
			}
			notices[c.id] = next
		case <-timer.C:
			if s.notify(notices, time.Now()) {
				last = time.Now()
			}
		case <-s.life.Done():
			for len(s.changes) > 0 {
				notices[(<-s.changes).id] = notice{}
			}
			s.notify(notices, time.Now().Add(time.Hour))
			return
		}
		first := time.Now().Add(time.Hour)
		for _, n := range notices {
			if n.at.Before(first) {
				first = n.at
			}
		}
		if soonest := last.Add(notifyPause); first.Before(soonest) {
			first = soonest
		}
		timer.Reset(time.Until(first))
	}
}

// notify notifies of the partitions that are due, and reports whether there were any. An error is none: who listens polls, too.
func (s *Store) notify(notices map[string]notice, now time.Time) bool {
	var due []string
	for id, n := range notices {
		if n.at.After(now) {
			continue
		}
		due = append(due, id)
		if n.n++; n.n >= len(notifyAfter) {
			delete(notices, id)
		} else {
			notices[id] = notice{now.Add(notifyAfter[n.n]), n.n}
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.life), notifyTime)
	defer cancel()
	for part := range slices.Chunk(due, renewBatch) {
		_ = s.DB.WithContext(ctx).Exec("SELECT pg_notify(?, id) FROM partitions WHERE id IN ?", wakeChannel, part).Error
	}
	return len(due) > 0
}

// Hub passes wake-ups on within the process.
type Hub struct{ subs sync.Map } // by *func(string)

// Subscribe has f called for each partition that was changed. f must not block.
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
