// Package servertest runs nats-servers for tests: one server with [RunServer], or a cluster of three with [RunCluster].
// A constructor with a [testing.TB] registers a cleanup that stops everything it started, and waits for the end.
package servertest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	// startTimeout limits the start of one server.
	startTimeout = 20 * time.Second
	// waitTimeout limits every wait for a condition on a real server.
	waitTimeout = 30 * time.Second
	// pollEvery is the interval at which such a condition is checked.
	pollEvery = 10 * time.Millisecond
)

// Server is a nats-server with JetStream in this process. It can be stopped,
// and restarted on the same port and store. Its methods are safe for
// concurrent use.
type Server struct {
	dir    string
	config string // the text of a configuration file, or empty
	tune   []func(*server.Options)
	tb     testing.TB // nil for a server of StartServer, which only stops

	mu   sync.Mutex
	srv  *natsembed.Server
	log  *Log // nil until the first start
	port int  // 0 until the first start
}

// ServerOption is an option of a server.
type ServerOption func(*Server)

// WithDomain sets the JetStream domain.
func WithDomain(domain string) ServerOption {
	return WithOptions(func(o *server.Options) { o.JetStreamDomain = domain })
}

// WithConfig sets the text of the server's configuration file, for accounts
// and permissions. The harness replaces its host, port and store directory,
// and always enables JetStream.
func WithConfig(text string) ServerOption {
	return func(s *Server) { s.config = text }
}

// WithAttackers adds users to the account of all other clients, which need no password. The name of a user is a list of subjects,
// separated by spaces. The user may publish to these, and subscribe to its inbox, and nothing else. [Server.Attacker] connects as a user.
func WithAttackers(users ...string) ServerOption {
	text := "no_auth_user: system\naccounts {SYSTEM: {jetstream: enabled, users: [{user: system, password: none}"
	for _, user := range users {
		subjects := strings.ReplaceAll(fmt.Sprintf("%q", user), " ", `", "`)
		text += fmt.Sprintf(", {user: %q, password: attacker, permissions: {publish: [%s], subscribe: \"_INBOX.>\"}}", user, subjects)
	}
	return WithConfig(text + "]}}")
}

// WithOptions calls change at each start, after all other options are set.
func WithOptions(change func(*server.Options)) ServerOption {
	return func(s *Server) { s.tune = append(s.tune, change) }
}

// RunServer starts a server on a random port of 127.0.0.1, with its store in a folder of the test. It stops the server when the test ends.
func RunServer(tb testing.TB, opts ...ServerOption) *Server {
	tb.Helper()
	natstest.EmptyTimerPool()
	s := newTestServer(tb, opts)
	s.Start()
	return s
}

// newTestServer returns a server that is not started yet. It is stopped when the test ends. If the test has failed, its log is shown.
func newTestServer(tb testing.TB, opts []ServerOption) *Server {
	tb.Helper()
	s := newServer(tempDir(tb), opts)
	s.tb = tb
	tb.Cleanup(func() {
		s.Stop()
		if tb.Failed() {
			tb.Logf("log of the server %s:\n%s", s.URL(), s.Log())
		}
	})
	return s
}

// StartServer is like RunServer, but for a process that is not a test. The caller owns the folder of the store, and must call Stop.
func StartServer(dir string, opts ...ServerOption) (*Server, error) {
	s := newServer(dir, opts)
	return s, s.start()
}

func newServer(dir string, opts []ServerOption) *Server {
	s := &Server{dir: dir}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// tempDir returns a folder in tb.TempDir. It is emptied before the testing package removes it. A server that was shut down may still be closing
// a file, and the test would then fail with "directory not empty".
func tempDir(tb testing.TB) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "nats")
	require.NoError(tb, os.MkdirAll(dir, 0o700))
	tb.Cleanup(func() {
		eventually(tb, waitTimeout, "remove the store of the server", func() error { return os.RemoveAll(dir) })
	})
	return dir
}

// Start restarts a stopped server on the same port and store. It does nothing
// if the server is running. If the server does not start, the test fails.
func (s *Server) Start() {
	s.tb.Helper()
	require.NoError(s.tb, s.start())
}

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	log := &Log{}
	srv, err := natsembed.Start(ctx, natsembed.Options{
		Dir: filepath.Join(s.dir, "store"), Port: s.port, Configure: s.configure,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		return fmt.Errorf("servertest: %w; its log:\n%s", err, log)
	}
	s.srv, s.log, s.port = srv, log, srv.Port()
	return nil
}

// configure sets the options. It is called at each start, because a running server changes its options.
func (s *Server) configure(opts *server.Options) error {
	if s.config != "" {
		parsed := &server.Options{}
		if err := parsed.ProcessConfigString(s.config); err != nil {
			return fmt.Errorf("server configuration: %w\n%s", err, s.config)
		}
		parsed.Host, parsed.Port, parsed.StoreDir = opts.Host, opts.Port, opts.StoreDir
		parsed.JetStream, parsed.NoSigs = true, true
		*opts = *parsed
	}
	for _, change := range s.tune {
		change(opts)
	}
	return nil
}

// Stop shuts the server down gracefully and waits for its end. It keeps the port and the store. It does nothing if the server is stopped.
func (s *Server) Stop() {
	s.mu.Lock()
	srv := s.srv
	s.srv = nil
	s.mu.Unlock()
	if srv != nil {
		srv.Stop()
	}
}

// Restart calls Stop and Start.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Stop()
	s.Start()
}

// Reload changes the configuration of the running server; see [WithConfig]. Clients stay connected.
func (s *Server) Reload(text string) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = text
	opts := &server.Options{Host: "127.0.0.1", Port: s.port, StoreDir: s.srv.Dir()}
	require.NoError(s.tb, s.configure(opts))
	require.NoError(s.tb, s.srv.Unwrap().ReloadOptions(opts))
}

// URL returns the URL for clients. It does not change at a restart.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("nats://127.0.0.1:%d", s.port)
}

// Unwrap returns the nats-server itself, or nil while it is stopped.
func (s *Server) Unwrap() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv == nil {
		return nil
	}
	return s.srv.Unwrap()
}

// Log returns the warnings and errors that the server has logged since its last start.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log == nil {
		return ""
	}
	return s.log.String()
}

// Connect connects to the server. By default, the connection reconnects forever, after about 20 ms. It is closed when the test ends.
func (s *Server) Connect(tb testing.TB, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	return natstest.Connect(tb, s.URL(), opts...)
}

// Attacker connects as a user of [WithAttackers].
func (s *Server) Attacker(tb testing.TB, user string) *nats.Conn {
	tb.Helper()
	return s.Connect(tb, nats.UserInfo(user, "attacker"))
}

// JetStream returns nats.go's JetStream on nc, in the server's domain if it has one.
func (s *Server) JetStream(tb testing.TB, nc *nats.Conn) jetstream.JetStream {
	tb.Helper()
	domain := s.Unwrap().JetStreamConfig().Domain
	if domain == "" {
		return natstest.JetStream(tb, nc)
	}
	js, err := jetstream.NewWithDomain(nc, domain)
	require.NoError(tb, err)
	return js
}

// eventually calls try until it returns nil. After limit, the test fails with what and the last error.
func eventually(tb testing.TB, limit time.Duration, what string, try func() error) {
	tb.Helper()
	for begin := time.Now(); ; time.Sleep(pollEvery) {
		err := try()
		if err == nil {
			return
		}
		if time.Since(begin) > limit {
			tb.Fatalf("servertest: %s: not within %s: %v", what, limit, err)
		}
	}
}
