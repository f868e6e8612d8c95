package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/gorm"
)

const (
	// wakeChannel is the channel of PostgreSQL's NOTIFY.
	wakeChannel = "jetpull_feed"
	// listenPool is how many connections a pool must be allowed for one to be kept for listening.
	listenPool = 4
)

// Listen keeps a connection of PostgreSQL's pool for notifications.
func (s *Store) Listen(ctx context.Context, f func(partition string)) error {
	if !s.batch {
		return nil
	}
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

// notify notifies other processes of a change when the transaction commits, if the database supports it.
func (s *Store) notify(tx *gorm.DB, partition string) error {
	if s.Dialect.Name != "postgres" {
		return nil
	}
	return tx.Exec("SELECT pg_notify(?, ?)", wakeChannel, partition).Error
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
