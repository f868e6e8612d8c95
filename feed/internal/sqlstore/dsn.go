package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	driver "github.com/glebarez/go-sqlite"
	"github.com/glebarez/sqlite"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlserver"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/jetpull/jetpull/internal/mask"
)

const (
	// poolSize is the maximum number of connections of a Store that Open returned.
	poolSize = 16
	// connectionAge is how long the Store uses a connection, so that it finds a server that has taken over from one that still answers.
	connectionAge = 30 * time.Minute
)

// memoryDSN is the beginning of the name of a SQLite database in memory.
const memoryDSN = ":memory:"

// Open opens the database that a DSN names.
func Open(ctx context.Context, dsn string) (s *Store, err error) {
	err = again(ctx, defaultPatience, func() error {
		s, err = open(ctx, dsn)
		return err
	})
	return s, err
}

func open(ctx context.Context, dsn string) (*Store, error) {
	dialector, size, err := dialectorOf(dsn)
	if err != nil {
		return nil, err
	}
	db, err := gorm.Open(dialector, &gorm.Config{Logger: logger.Discard, DisableAutomaticPing: true})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(size)
	pool.SetMaxIdleConns(size)
	if size == poolSize { // a SQLite database in memory ends with its connection
		pool.SetConnMaxLifetime(connectionAge)
	}
	if err := pool.PingContext(ctx); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	s, err := New(db)
	if err == nil {
		s.pool = pool
		if path, _ := sqliteFile(dsn); s.Dialect.OneWriter && !s.memory {
			s.path = path
			s.file, _ = os.Stat(path)
		}
	}
	return s, err
}

func dialectorOf(dsn string) (gorm.Dialector, int, error) {
	scheme, rest, _ := strings.Cut(dsn, ":")
	switch scheme {
	case "sqlite":
		if strings.HasPrefix(rest, memoryDSN) {
			// Each connection would have its own database.
			return sqlite.Open(rest), 1, nil
		}
		path, query := sqliteFile(dsn)
		if path == "" {
			return nil, 0, Invalid("DSN", "names no file; give sqlite:feed.db")
		}
		createPrivate(path, query)
		if query != "" {
			query = "&" + query
		}
		return sqlite.Open(fmt.Sprintf("file:%s?_txlock=immediate&_pragma=busy_timeout(%d)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)%s",
			(&url.URL{Path: path}).EscapedPath(), busyWait.Milliseconds(), query)), 4, nil
	case "postgres", "postgresql":
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, 0, fmt.Errorf("%w DSN: %w", ErrInvalid, err)
		}
		keep := cfg.OnPgError
		cfg.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool { // false closes the connection
			return err.Code != readOnly && keep(conn, err)
		}
		return postgres.New(postgres.Config{Conn: stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(configure))}), poolSize, nil
	case "sqlserver":
		// The driver is opened here and not by GORM, which would connect without a context.
		pool, err := sql.Open("sqlserver", dsn)
		if err != nil {
			return nil, 0, fmt.Errorf("%w DSN: %w", ErrInvalid, err)
		}
		return sqlserver.New(sqlserver.Config{Conn: pool}), poolSize, nil
	}
	return nil, 0, Invalid("DSN", "begins with none of sqlite:, postgres:// and sqlserver://")
}

// sqliteFile returns the file of a DSN of SQLite, and its parameters.
func sqliteFile(dsn string) (path, query string) {
	path, query, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(dsn, "sqlite:"), "//"), "?")
	return path, query
}

// present returns an error if the file of a SQLite database is not the one that was opened: writes would be lost.
func (s *Store) present() error {
	if s.file == nil {
		return nil
	}
	if now, err := os.Stat(s.path); err != nil || !os.SameFile(s.file, now) {
		return fmt.Errorf("file %s was replaced or removed since it was opened; restart the program", s.path)
	}
	return nil
}

// createPrivate creates an empty file for SQLite, which would create one that others can read. The files beside it get its mode. An existing file is
// left alone. If it cannot create the file, SQLite reports the error.
func createPrivate(path, query string) {
	if values, err := url.ParseQuery(query); err != nil || (values.Has("mode") && values.Get("mode") != "rwc") {
		return
	}
	if f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
		_ = f.Close()
	}
}

// configure sets two parameters of a connection to PostgreSQL, unless the DSN sets them. The server ends a transaction whose process was stopped in
// the middle of it: its rows are locked, and nobody else could work on those partitions until the process continues. With many open partitions, the
// scan's estimated cost makes PostgreSQL compile it each time, which takes longer than the scan.
func configure(ctx context.Context, conn *pgx.Conn) error {
	for name, value := range map[string]string{"idle_in_transaction_session_timeout": "'10s'", "jit": "off"} {
		if _, given := conn.Config().RuntimeParams[name]; given {
			continue
		}
		if _, err := conn.Exec(ctx, "SET "+name+" = "+value); err != nil {
			return err
		}
	}
	return nil
}

// OpenError adds the database to an error, without its password.
func OpenError(dsn string, err error) error {
	if lite, ok := errors.AsType[*driver.Error](err); ok && lite.Code() == 14 { // SQLITE_CANTOPEN, whose text speaks of memory
		path, _ := sqliteFile(dsn)
		err = fmt.Errorf("folder %s is not there, or may not be written: %w", filepath.Dir(path), err)
	}
	return fmt.Errorf("feed: open %q: %w", mask.URL(dsn), mask.Error(err, dsn))
}
