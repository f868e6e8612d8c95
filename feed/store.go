package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/glebarez/go-sqlite"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/nats-io/nats.go"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// Store is the tables of a database. It may be used by several goroutines, and several processes may have one on the
// same database.
//
// Other programs may read both tables and write them. Of partitions they write id, gate, status and version, of items
// partition_id, id, gate, status, data and version; the rest has defaults. They change a row with UPDATE … SET version = version + 1 … WHERE id = … AND version = …: such a write stands, and what a watcher
// then has for the older version is dropped.
type Store struct {
	db      *gorm.DB
	dialect *dialect
	owned   bool // Close closes the database
	batch   bool // PostgreSQL by pgx: arrays as parameters
	hub     hub
	// writer lets the writers of this process wait in turn for the one lock of a SQLite database.
	writer chan struct{}

	migrate bool
	publish *nats.Conn
}

// StoreOption changes how a Store is opened.
type StoreOption func(*Store)

// NoMigrate leaves the tables as they are. By default they are created and brought up to date.
func NoMigrate() StoreOption { return func(s *Store) { s.migrate = false } }

// PublishWakeups publishes the partitions that this Store changes to [WakeupSubject], after the commit, for
// the watchers with [Wakeups]. None by default. A connection that is down costs nothing but their latency.
func PublishWakeups(nc *nats.Conn) StoreOption { return func(s *Store) { s.publish = nc } }

// NewStore makes a Store on a database of GORM's SQLite, PostgreSQL or SQL Server driver; others are [ErrInvalid].
// The caller closes the database after the Store. On PostgreSQL it is fast with the pgx driver only, which is GORM's
// default.
func NewStore(ctx context.Context, db *gorm.DB, opts ...StoreOption) (*Store, error) {
	if db == nil {
		return nil, invalid("db", "is nil")
	}
	d := dialects[db.Name()]
	if d == nil {
		return nil, invalid("db", "dialect %q is not sqlite, postgres or sqlserver", db.Name())
	}
	s := &Store{
		db:      db.Session(&gorm.Session{NewDB: true, Logger: logger.Discard, SkipDefaultTransaction: true}),
		dialect: d, migrate: true, writer: make(chan struct{}, 1),
	}
	for _, o := range opts {
		o(s)
	}
	if pool, err := db.DB(); err == nil && d.name == "postgres" {
		_, s.batch = pool.Driver().(*stdlib.Driver)
	}
	if s.migrate {
		if err := s.Migrate(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close gives up the connections of a Store that [Open] made. Watchers on it must have ended.
func (s *Store) Close() error {
	if !s.owned {
		return nil
	}
	pool, err := s.db.DB()
	if err == nil {
		err = pool.Close()
	}
	if err != nil {
		return fmt.Errorf("feed: close the database: %w", err)
	}
	return nil
}

const (
	writeTries = 6
	writePause = 5 * time.Millisecond
)

// write runs f in a transaction, again where the database gave up on it in favour of another one.
func (s *Store) write(ctx context.Context, f func(tx *gorm.DB) error) error {
	return s.retry(ctx, func() error { return s.db.WithContext(ctx).Transaction(f) })
}

// retry runs one transaction, in turn where the database has one writer.
func (s *Store) retry(ctx context.Context, transact func() error) error {
	for try := 1; ; try++ {
		err := s.inTurn(ctx, transact)
		if err == nil || !transient(err) {
			return err
		}
		if try == writeTries {
			return fmt.Errorf("%w: %w", ErrConflict, err)
		}
		pause := time.NewTimer(rand.N(writePause << try))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

func (s *Store) inTurn(ctx context.Context, transact func() error) error {
	if s.dialect.oneWriter {
		select {
		case s.writer <- struct{}{}:
			defer func() { <-s.writer }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return transact()
}

// locked is write for what is done to a partition whose row it locks.
func (s *Store) locked(id string, f func(tx *gorm.DB, p *partitionRow) error) func(tx *gorm.DB) error {
	return func(tx *gorm.DB) error {
		if err := s.dialect.begin(tx); err != nil {
			return err
		}
		p, err := s.dialect.lock(tx, id)
		if err != nil {
			return err
		}
		return f(tx, &p)
	}
}

// change locks a partition, changes it, and wakes the watchers after the commit.
func (s *Store) change(ctx context.Context, id string, f func(tx *gorm.DB, p *partitionRow) error) error {
	return s.wakeAfter(ctx, id, s.locked(id, f))
}

// wakeAfter is write that wakes the watchers.
func (s *Store) wakeAfter(ctx context.Context, id string, f func(tx *gorm.DB) error) error {
	err := s.write(ctx, func(tx *gorm.DB) error {
		if err := f(tx); err != nil {
			return err
		}
		if s.dialect.name != "postgres" {
			return nil
		}
		return tx.Exec("SELECT pg_notify(?, ?)", wakeChannel, id).Error
	})
	if err == nil {
		s.wake(id)
	}
	return err
}

func (s *Store) wake(id string) {
	s.hub.send(id)
	if s.publish != nil {
		// A hint: where it cannot be sent the poll finds what there is.
		_ = s.publish.Publish(WakeupSubject, []byte(id))
	}
}

// transient tells whether the same transaction may succeed when it is run again.
func transient(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code == "40001" || pg.Code == "40P01" // serialization_failure, deadlock_detected
	}
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		code := lite.Code() & 0xff
		return code == 5 || code == 6 // SQLITE_BUSY, SQLITE_LOCKED
	}
	return false
}

// duplicate tells whether a unique index refused a row.
func (s *Store) duplicate(err error) bool {
	translator, ok := s.db.Dialector.(gorm.ErrorTranslator)
	return ok && errors.Is(translator.Translate(err), gorm.ErrDuplicatedKey)
}

// hub passes wake-ups on within the process.
type hub struct {
	mu   sync.Mutex
	subs map[*func(string)]struct{}
}

// subscribe has f called for each partition that was changed. f must not block.
func (h *hub) subscribe(f func(partition string)) (cancel func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = map[*func(string)]struct{}{}
	}
	h.subs[&f] = struct{}{}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs, &f)
	}
}

func (h *hub) send(partition string) {
	h.mu.Lock()
	subs := make([]func(string), 0, len(h.subs))
	for f := range h.subs {
		subs = append(subs, *f)
	}
	h.mu.Unlock()
	for _, f := range subs {
		f(partition)
	}
}
