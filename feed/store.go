package feed

import (
	"context"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// Store is the tables of a database. It may be used by several goroutines, and several processes may have one on the
// same database.
//
// Other programs may read both tables and write them. Of partitions they write id, gate, status and version, of items
// partition_id, id, gate, status, data and version; the rest has defaults. They change a row with UPDATE … SET
// version = version + 1 … WHERE id = … AND version = …: such a write stays, and a watcher's result for the older
// version is dropped. They must commit soon: while the row of a partition is locked, the watcher that holds it saves nothing,
// and its leases can end. A not_before that is no time, such as infinity, is read as zero.
type Store struct {
	sql   *sqlstore.Store
	owned bool // Close closes the database

	prunedPartitions, prunedItems atomic.Int64

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

// Open opens a database and migrates its tables unless [NoMigrate] is given. The DSN is one of
//
//	sqlite:feed.db                          a file, created if it is not there; sqlite::memory: is lost with the Store
//	postgres://user:password@host/database
//	sqlserver://user:password@host?database=name
//
// A SQLite file is created for its owner alone, and is in WAL mode with each commit synced; a writer waits 10 s for others. A connection to PostgreSQL has
// idle_in_transaction_session_timeout at 10 s and jit off, unless the DSN sets them. The errors name the DSN without
// its password. A DSN that is none of these is [ErrInvalid].
func Open(ctx context.Context, dsn string, opts ...StoreOption) (*Store, error) {
	db, err := sqlstore.Open(ctx, dsn)
	if err != nil {
		return nil, sqlstore.OpenError(dsn, err)
	}
	s, err := NewStore(ctx, db, opts...)
	if err != nil {
		if pool, poolErr := db.DB(); poolErr == nil {
			_ = pool.Close()
		}
		return nil, sqlstore.OpenError(dsn, err)
	}
	s.owned = true
	return s, nil
}

// NewStore makes a Store on a database of GORM. SQLite, PostgreSQL and SQL Server have statements and indexes of their own;
// any other database that has transactions, FOR UPDATE and CURRENT_TIMESTAMP works by those that GORM writes. There the
// connection's time zone is UTC, and IDs compare as the database compares text. The caller closes the database after the
// Store. On PostgreSQL it is fast with the pgx driver only, which is GORM's default, and with jit=off in the DSN, as
// [Open] has it.
func NewStore(ctx context.Context, db *gorm.DB, opts ...StoreOption) (*Store, error) {
	s := &Store{migrate: true}
	for _, o := range opts {
		if o == nil {
			return nil, invalid("StoreOption", "is nil; leave it out")
		}
		o(s)
	}
	var err error
	if s.sql, err = sqlstore.New(db); err != nil {
		return nil, err
	}
	if s.publish != nil {
		s.sql.Subscribe(func(partition string) {
			// A hint: if it cannot be sent, polling finds the work.
			_ = s.publish.Publish(WakeupSubject, []byte(partition))
		})
	}
	if s.migrate {
		if err := s.Migrate(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close gives up the connections of a Store that [Open] made. Watchers on it must have ended, and so must transactions of
// [Store.InsertTx].
func (s *Store) Close() error {
	s.sql.Stop()
	if !s.owned {
		return nil
	}
	return wrapped(s.sql.Close(), "close the database")
}

// Migrate brings the tables to this version of the package. Several processes may call it at the same time on SQLite and
// PostgreSQL; elsewhere one at a time. [Open] and [NewStore] call it unless [NoMigrate] is given.
func (s *Store) Migrate(ctx context.Context) error {
	return wrapped(s.sql.Migrate(ctx), "migrate the tables")
}

// change locks a partition and changes it, in one transaction. The error says in which operation it came.
func (s *Store) change(ctx context.Context, what, partition string, f func(tx *gorm.DB, p *sqlstore.Partition) error) error {
	return wrapped(s.sql.Change(ctx, partition, f), "%s partition %q", what, partition)
}
