package feed

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// The errors of a [Store] and a [Watcher] wrap one of these, or the database's own.
var (
	// ErrNotFound means that no partition or item has this ID.
	ErrNotFound = sqlstore.ErrNotFound
	// ErrClosed means that the partition accepts no items, because it is sealed or Complete.
	ErrClosed = sqlstore.ErrClosed
	// ErrGatePassed means that the partition has passed this gate.
	ErrGatePassed = sqlstore.ErrGatePassed
	// ErrDuplicate means that a partition, or an item of the partition, already has this ID.
	ErrDuplicate = sqlstore.ErrDuplicate
	// ErrNotDone means that an item is not Complete, but the operation requires it.
	ErrNotDone = sqlstore.ErrNotDone
	// ErrConflict means that a row is not in the state that the write expected, or that another program wrote it first.
	ErrConflict = sqlstore.ErrConflict
	// ErrInvalid means that a field or an option cannot be used; the error names it.
	ErrInvalid = sqlstore.ErrInvalid
	// ErrDrainTimeout means that handlers were still running, or leases were not released, when [DrainTimeout] was over.
	ErrDrainTimeout = errors.New("drain timeout")
)

var invalid = sqlstore.Invalid

// check returns ErrInvalid for a field or an option, unless it is ok.
func check(ok bool, name, format string, args ...any) error {
	if ok {
		return nil
	}
	return invalid(name, format, args...)
}

// wrapped adds the operation to an error. It returns nil for nil.
func wrapped(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("feed: %s: %w", fmt.Sprintf(format, args...), err)
}

// Store gives access to the tables of a feed in a database. It may be used by several goroutines, and several processes may have a Store on the
// same database.
//
// Other programs may read and write both tables. In partitions they write id, gate, status and version. In items they write partition_id, id,
// gate, status, data and version. The other columns have defaults. They change a row with UPDATE … SET version = version + 1 … WHERE id = … AND
// version = …. Such a write stays, and a watcher's result for the older version is dropped. They must commit soon: while the row of a partition is
// locked, no item of it begins, its finished items are not saved, and its lease can end. On PostgreSQL, other partitions are not affected. On
// other databases, the watcher that holds the partition saves nothing. A not_before that is not a time, such as infinity, is read as zero.
type Store struct {
	sql *sqlstore.Store

	prunedPartitions, prunedItems atomic.Int64

	migrate bool
	publish *nats.Conn
}

// StoreOption changes how a Store is opened.
type StoreOption func(*Store)

// NoMigrate leaves the tables unchanged. By default they are created, and migrated to this version of the package. Either way, tables of a later
// version are refused.
func NoMigrate() StoreOption { return func(s *Store) { s.migrate = false } }

// PublishWakeups publishes the ID of each partition that this Store changes to [WakeupSubject], after the commit, for watchers with [Wakeups]. By
// default, nothing is published. While the connection is down, those watchers find the work by polling.
func PublishWakeups(nc *nats.Conn) StoreOption { return func(s *Store) { s.publish = nc } }

// Open opens a database and migrates its tables unless [NoMigrate] is given. The DSN is one of
//
//	sqlite:feed.db                          a file, created if it is missing; sqlite::memory: is lost with the Store
//	postgres://user:password@host/database
//	sqlserver://user:password@host?database=name
//
// Only its owner can read and write a SQLite file that Open creates. It is in WAL mode, and each commit is synced. A writer waits up to 10 s for
// other writers. On PostgreSQL, idle_in_transaction_session_timeout is 10 s and jit is off, unless the DSN sets them. An item that takes longer than
// that to send, such as 50 MB at 5 MB/s, needs a longer timeout. A connection to PostgreSQL or SQL Server is used for at most 30 minutes, and not
// after a server has refused a write because it is read-only, so that the Store finds a server that has taken over. If the file of SQLite is replaced
// or removed, writes and watchers fail until the Store is opened again. Errors show the DSN without its password. Any other DSN is [ErrInvalid].
func Open(ctx context.Context, dsn string, opts ...StoreOption) (*Store, error) {
	tables, err := sqlstore.Open(ctx, dsn)
	if err != nil {
		return nil, sqlstore.OpenError(dsn, err)
	}
	s, err := newStore(ctx, tables, opts)
	if err != nil {
		_ = tables.Close()
		return nil, sqlstore.OpenError(dsn, err)
	}
	return s, nil
}

// NewStore returns a Store on a database that the program has opened with GORM. It has its own statements and indexes for SQLite, PostgreSQL and SQL
// Server. Any other database that has transactions, FOR UPDATE and CURRENT_TIMESTAMP works with the statements that GORM generates. For such a
// database the connection's time zone must be UTC, and IDs compare as the database compares text. The caller closes the database after the Store.
// PostgreSQL is fast only with the pgx driver, which is GORM's default, and with jit=off in the DSN, which [Open] sets.
func NewStore(ctx context.Context, db *gorm.DB, opts ...StoreOption) (*Store, error) {
	tables, err := sqlstore.New(db)
	if err != nil {
		return nil, err
	}
	return newStore(ctx, tables, opts)
}

func newStore(ctx context.Context, tables *sqlstore.Store, opts []StoreOption) (*Store, error) {
	s := &Store{sql: tables, migrate: true}
	for _, o := range opts {
		if o == nil {
			return nil, invalid("StoreOption", "is nil; leave it out")
		}
		o(s)
	}
	if s.publish != nil {
		s.sql.Subscribe(publishTo(s.publish))
	}
	if err := s.sql.Migrate(ctx, s.migrate); err != nil {
		return nil, wrapped(err, "migrate the tables")
	}
	return s, nil
}

// Close wakes watchers of other processes that have not been woken yet, and closes the connections of a Store that [Open] returned.
// Before that, its watchers and the transactions of [Store.InsertTx] must have ended.
func (s *Store) Close() error {
	return wrapped(s.sql.Close(), "close the database")
}

// Migrate changes the tables to those of this version of the package. On SQLite and PostgreSQL several processes may call it at the same time;
// on other databases only one. [Open] and [NewStore] call it unless [NoMigrate] is given.
func (s *Store) Migrate(ctx context.Context) error {
	return wrapped(s.sql.Migrate(ctx, true), "migrate the tables")
}
