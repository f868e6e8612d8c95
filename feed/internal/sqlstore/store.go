// Package sqlstore has the tables of a feed in a database, all statements, and the fence of each. It does not know which items are being processed.
// Its only goroutine wakes watchers. Package feed has the guarantees and their tests.
package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	gormlite "github.com/glebarez/sqlite"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/jetpull/jetpull/internal/watch"
)

// Store accesses the tables of one database. It runs statements and transactions of inserters, operators and readers, and has the statements of
// watchers.
type Store struct {
	Hub     // of the changes that inserters and operators make, called after the commit
	DB      *gorm.DB
	pool    *sql.DB // nil if the caller opened the database
	Dialect *dialect
	batch   bool // PostgreSQL with pgx: arrays as parameters
	// writer lets the writers of this process wait in turn for the one lock of a SQLite database.
	writer chan struct{}
	// memory: the database is in memory. It is lost with its connection, which a cancelled transaction would close.
	memory bool
	// path is the file of a SQLite database that Open opened, and file its description at that time.
	path string
	file os.FileInfo
	// Patience is how long a statement is retried that the database has aborted in favour of another one.
	Patience time.Duration
	// changes are the changes for which a goroutine wakes watchers. The first change starts it. It ends with life, and Close waits for it.
	changes chan change
	waking  sync.Once
	life    context.Context
	end     context.CancelFunc
	waiting sync.WaitGroup
}

// New returns a Store on a database of GORM.
func New(db *gorm.DB) (*Store, error) {
	if db == nil {
		return nil, Invalid("db", "is nil")
	}
	d := cmp.Or(dialects[db.Name()], portable(db.Name()))
	life, end := context.WithCancel(context.Background())
	s := &Store{
		// QueryFields names the columns: with an asterisk, a prepared statement of PostgreSQL fails once another program has added a column.
		DB:      db.Session(&gorm.Session{NewDB: true, Logger: logger.Discard, SkipDefaultTransaction: true, QueryFields: true}),
		Dialect: d, writer: make(chan struct{}, 1), changes: make(chan change, changesMost), Patience: defaultPatience, life: life, end: end,
	}
	if pool, err := db.DB(); err == nil && d.Name == "postgres" {
		_, s.batch = pool.Driver().(*stdlib.Driver)
	}
	lite, ok := db.Dialector.(*gormlite.Dialector)
	s.memory = ok && strings.HasPrefix(lite.DSN, memoryDSN)
	return s, nil
}

// Close wakes the watchers that have not been woken yet, and closes a database that Open opened.
func (s *Store) Close() error {
	s.end()
	s.waiting.Wait()
	if s.pool == nil {
		return nil
	}
	return s.pool.Close()
}

const (
	defaultPatience = 10 * time.Second
	// busyWait is how long SQLite itself waits for another process. No context ends that wait.
	busyWait              = 100 * time.Millisecond
	pauseLeast, pauseMost = 10 * time.Millisecond, 100 * time.Millisecond
)

// again calls f. For up to patience, it retries if the database aborted f in favour of another transaction. If ctx has ended, the error also wraps
// its cause, because drivers only report that a query was interrupted, or a transaction over.
func again(ctx context.Context, patience time.Duration, f func() error) error {
	begun := time.Now()
	for pause := pauseLeast; ; pause = min(2*pause, pauseMost) {
		err := f()
		if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
			return errors.Join(cause, err)
		}
		if !transient(err) || time.Since(begun) >= patience {
			return err
		}
		if ended := watch.Sleep(ctx, rand.N(pause)); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// Read runs statements that only read. SQLite refuses them while another process opens or closes the file.
func (s *Store) Read(ctx context.Context, f func(db *gorm.DB) error) error {
	return again(ctx, s.Patience, func() error { return f(s.DB.WithContext(ctx)) })
}

// Transact calls f in a transaction, and retries if the database aborted it in favour of another one.
func (s *Store) Transact(ctx context.Context, f func(tx *gorm.DB) error) error {
	return s.retry(ctx, func() error {
		if s.memory && ctx.Err() == nil {
			ctx = context.WithoutCancel(ctx)
		}
		return s.DB.WithContext(ctx).Transaction(f, &sql.TxOptions{Isolation: s.Dialect.isolation})
	})
}

// retry runs one transaction, in turn if the database has one writer.
func (s *Store) retry(ctx context.Context, transact func() error) error {
	err := again(ctx, s.Patience, func() error { return s.InTurn(ctx, transact) })
	if transient(err) && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return err
}

// InTurn runs a transaction. If the database has one writer, it waits until no other goroutine writes.
func (s *Store) InTurn(ctx context.Context, transact func() error) error {
	if s.Dialect.OneWriter {
		select {
		case s.writer <- struct{}{}:
			defer func() { <-s.writer }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := s.present(); err != nil {
		return err
	}
	return transact()
}

// Change locks a partition and changes it, in a transaction. For a partition that is being pruned, it returns ErrNotFound.
func (s *Store) Change(tx *gorm.DB, id string, f func(tx *gorm.DB, p *Partition) error) error {
	p, err := First[Partition](s.Dialect.lock(tx, id), "id = ?", id)
	if err == nil && p.Status == Pruning {
		err = ErrNotFound
	}
	if err != nil {
		return err
	}
	return f(tx, &p)
}

// Write is a transaction that changes what watchers may do in a partition. It wakes them after the commit.
func (s *Store) Write(ctx context.Context, id string, f func(tx *gorm.DB) error) error {
	err := s.Transact(ctx, f)
	if err == nil {
		s.Send(id)
		if s.Dialect.Name == "postgres" {
			s.wakeAt(time.Now(), id)
		}
	}
	return err
}

// In is Write in the caller's transaction. It wakes watchers at times when that may have committed.
func (s *Store) In(ctx context.Context, pool gorm.ConnPool, id string, f func(tx *gorm.DB) error) error {
	tx := s.DB.Session(&gorm.Session{Context: ctx})
	tx.Statement.ConnPool = pool
	if err := f(tx); err != nil {
		return err
	}
	now := time.Now()
	for _, after := range wakeAfter {
		s.wakeAt(now.Add(after), id)
	}
	return nil
}
