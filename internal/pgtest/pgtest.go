// Package pgtest runs a PostgreSQL server for tests and benchmarks: a fresh cluster in a temporary folder, on a free port of 127.0.0.1. The program
// that uses it must register the driver "pgx", as package feed does.
package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Env names a variable with the DSN of a server to use instead of starting one. Its user must be allowed to create databases.
const Env = "FEED_TEST_POSTGRES"

// ErrNone reports that PostgreSQL is not installed.
var ErrNone = errors.New("no PostgreSQL: install Debian's package postgresql, or name a server in " + Env)

// Server is a running server.
type Server struct {
	process
	dsn   string // of the database postgres
	bin   string
	args  []string
	names atomic.Int64
}

// Start starts a server, or uses the server of Env. settings are lines such as "fsync=off".
func Start(ctx context.Context, settings ...string) (*Server, error) {
	if dsn := os.Getenv(Env); dsn != "" {
		return &Server{dsn: dsn}, nil
	}
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin}
	if s.process, err = newProcess("feed-postgres-"); err != nil {
		return nil, err
	}
	if err = s.initialize(ctx, settings); err == nil {
		err = s.Restart(ctx)
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return s, nil
}

// initialize creates a cluster.
func (s *Server) initialize(ctx context.Context, settings []string) error {
	data := filepath.Join(s.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := s.own(data); err != nil {
		return err
	}
	initdb := s.program(ctx, filepath.Join(s.bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	s.args = []string{"-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="}
	for _, setting := range settings {
		s.args = append(s.args, "-c", setting)
	}
	s.dsn = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	return nil
}

// Restart starts the server again on the same cluster and port, after it has ended, and waits until it answers.
func (s *Server) Restart(ctx context.Context) error {
	db, err := sql.Open("pgx", s.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return s.start(ctx, db.PingContext, filepath.Join(s.bin, "postgres"), s.args...)
}

// Crash ends the server at once, like pg_ctl -m immediate: uncommitted data is lost, and the next start recovers from the log. The server must not be
// that of Env.
func (s *Server) Crash() { s.end() }

// Database creates an empty database and returns its DSN.
func (s *Server) Database(ctx context.Context) (string, error) {
	db, err := sql.Open("pgx", s.dsn)
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	name := fmt.Sprintf("feed_%d_%d_%d", os.Getpid(), time.Now().UnixNano(), s.names.Add(1))
	if _, err := db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	dsn, err := url.Parse(s.dsn)
	if err != nil {
		return "", err
	}
	dsn.Path = "/" + name
	return dsn.String(), nil
}

// Empty ends all other sessions of a database and drops its schema public. This is faster than creating a database, which copies hundreds of files.
func (s *Server) Empty(ctx context.Context, dsn string) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for _, statement := range []string{
		// The wait ensures that no statement of a killed process runs later.
		"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
		"DROP SCHEMA public CASCADE",
		"CREATE SCHEMA public",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("empty %s: %w", dsn, err)
		}
	}
	return nil
}

// binaries returns the folder of the newest installed PostgreSQL.
func binaries() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) + 2*strings.Compare(b, a) })
	if len(found) > 0 {
		return filepath.Dir(found[0]), nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	return "", ErrNone
}

// Shared is a server that a process starts once.
type Shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Get returns the server. The first call starts it.
func (s *Shared) Get(ctx context.Context) (*Server, error) {
	s.once.Do(func() {
		s.server, s.err = Start(context.WithoutCancel(ctx), "fsync=off", "autovacuum=off", "max_connections=200")
	})
	return s.server, s.err
}

// Stop stops the server if it was started.
func (s *Shared) Stop() {
	if s.server != nil {
		s.server.Stop()
	}
}
