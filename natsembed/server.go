// Package natsembed runs a NATS server with JetStream and a file store inside the process, for programs, examples
// and tests that need no server of their own:
//
//	srv, err := natsembed.Start(ctx, natsembed.Options{Dir: "data"})
//	if err != nil {
//		return err
//	}
//	defer srv.Stop()
//	nc, err := srv.Connect()
//
// The server acknowledges a message before it is on disk. [Server.Publish] also waits for the disk, and [Server.Durable] does so for
// messages that were published in another way.
//
// [Connect] is for programs in which the user may name a server. If none is named, it starts one in the process.
package natsembed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/mask"
)

const (
	// startTimeout bounds the start. The recovery of a store of many gigabytes takes a while.
	startTimeout = 60 * time.Second
	// readyPoll is the interval of checks for a failed start.
	readyPoll = 100 * time.Millisecond
	host      = "127.0.0.1"
)

// Options configure a server. The zero value is usable.
type Options struct {
	// Dir is the folder of the store. It is created if it is missing. Two servers cannot use it at the same time.
	// Empty means a temporary folder, which Stop removes.
	Dir string
	// Port is the TCP port on 127.0.0.1. 0 means any free port, and [NoPort] means that the server does not listen.
	Port int
	// Name is the name of the server. Empty means jetpull.
	Name string
	// Sync determines when the server syncs its files to disk. The zero value is [SyncGroup].
	Sync Sync
	// MaxPayload is the maximum size of a message in bytes. 0 means the server's default of 1 MiB.
	MaxPayload int32
	// Logger gets the server's warnings and errors. Nil discards them.
	Logger *slog.Logger
	// Fsync replaces [os.File.Sync] in [Server.Durable], for tests that simulate a loss of power or a failing disk. Nil is [os.File.Sync].
	Fsync func(f *os.File) error
	// Configure changes the options of the server after all others are set. If it returns an error, Start fails. Nil changes nothing.
	Configure func(*server.Options) error
}

var errNoContext = errors.New("natsembed: ctx is nil; use context.Background()")

// NoPort is an [Options.Port] with which the server does not listen. Only [Server.Connect] reaches it.
const NoPort = -1

// Server is a running server. It listens on loopback only.
type Server struct {
	mu      sync.RWMutex
	srv     *server.Server
	stopped bool

	options Options // with the actual port, which stays the same after a Restart
	dir     string
	stop    func()

	disk   *disk    // nil: the server was not started
	groups sync.Map // *group by stream
}

// Start starts a server and waits until it accepts connections, for a minute at most. The caller must call [Server.Stop]. If
// the server cannot listen on the port, the error wraps a [net.OpError] with the operation "listen".
func Start(ctx context.Context, o Options) (*Server, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if o.Port < NoPort || o.Port > 65535 {
		return nil, fmt.Errorf("natsembed: port %d is not in 0..65535; 0 is any that is free, -1 none", o.Port)
	}
	if _, err := o.Sync.interval(); err != nil {
		return nil, err
	}
	dir, remove, err := storeFolder(o.Dir)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		remove()
		return nil, err
	}
	srv, err := run(ctx, dir, o)
	if err != nil {
		unlockDir(lock)
		remove()
		return nil, err
	}
	if address, ok := srv.Addr().(*net.TCPAddr); ok {
		o.Port = address.Port
	}
	if o.Fsync == nil {
		o.Fsync = (*os.File).Sync
	}
	s := &Server{srv: srv, options: o, dir: dir, disk: &disk{fsync: o.Fsync, log: newServerLog(o.Logger).to}}
	s.stop = sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopped = true
		s.srv.Shutdown()
		s.srv.WaitForShutdown()
		unlockDir(lock)
		remove()
	})
	return s, nil
}

// Restart stops the server, and starts another one on the same store and port. Connections that reconnect continue with it.
// After an error no server runs; another Restart may start one.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx == nil:
		return errNoContext
	case s.stopped || s.srv == nil:
		return fmt.Errorf("natsembed: the server on %q was stopped, or not started", s.dir)
	}
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
	srv, err := run(ctx, s.dir, s.options)
	if err != nil {
		return err
	}
	s.srv = srv
	return nil
}

// storeFolder creates the folder of the store. remove deletes it if it is temporary.
func storeFolder(dir string) (abs string, remove func(), err error) {
	if dir == "" {
		if abs, err = os.MkdirTemp("", "jetpull-"); err != nil {
			return "", nil, fmt.Errorf("natsembed: make a folder for the store: %w", err)
		}
		return abs, func() { _ = os.RemoveAll(abs) }, nil
	}
	if abs, err = filepath.Abs(dir); err != nil {
		return "", nil, fmt.Errorf("natsembed: store folder %q: %w", dir, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return "", nil, fmt.Errorf("natsembed: make the store folder: %w", err)
	}
	return abs, func() {}, nil
}

func run(ctx context.Context, dir string, o Options) (*server.Server, error) {
	every, err := o.Sync.interval()
	if err != nil {
		return nil, err
	}
	opts := &server.Options{
		ServerName: o.Name, Host: host, Port: o.Port, DontListen: o.Port == NoPort,
		JetStream: true, StoreDir: dir, SyncAlways: o.Sync == SyncEach, SyncInterval: every,
		MaxPayload: o.MaxPayload, NoSigs: true,
	}
	if o.Name == "" {
		opts.ServerName = "jetpull"
	}
	if o.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	if o.Configure != nil {
		if err := o.Configure(opts); err != nil {
			return nil, fmt.Errorf("natsembed: configure the server on %s: %w", dir, err)
		}
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("natsembed: set up the server on %s: %w", dir, err)
	}
	log := newServerLog(o.Logger)
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready within %v", startTimeout))
	defer cancel()
	if err := awaitReady(ctx, srv, log); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, fmt.Errorf("natsembed: start the server on %s: %w", dir, err)
	}
	return srv, nil
}

// awaitReady waits until the server accepts connections. A server that cannot open its port or its store only logs
// that, so a fatal line ends the wait too.
func awaitReady(ctx context.Context, srv *server.Server, log *serverLog) error {
	for ctx.Err() == nil {
		ready := srv.ReadyForConnections(readyPoll)
		died, problem := log.state()
		switch {
		case died:
			return problem
		case ready && !srv.JetStreamEnabled():
			return fmt.Errorf("the server runs without JetStream: %w", problem)
		case ready:
			return nil
		}
	}
	_, problem := log.state()
	return fmt.Errorf("%w: %w", context.Cause(ctx), problem)
}

// URL returns the URL for clients, also after Stop. It is empty with [NoPort].
func (s *Server) URL() string {
	if s.Port() == NoPort {
		return ""
	}
	return "nats://" + net.JoinHostPort(host, strconv.Itoa(s.Port()))
}

// Port returns the port for clients, also after Stop, or [NoPort].
func (s *Server) Port() int {
	if s.options.Port == 0 {
		return NoPort
	}
	return s.options.Port
}

// Connect connects to the server in memory. The caller must close the connection.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	nc, err := nats.Connect("", append([]nats.Option{nats.InProcessServer(dialer{s})}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("natsembed: connect to the server on %s: %w", s.dir, err)
	}
	return nc, nil
}

// Unwrap returns the nats-server itself.
func (s *Server) Unwrap() *server.Server {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.srv
}

// Dir returns the folder of the store.
func (s *Server) Dir() string { return s.dir }

// Stop shuts the server down gracefully and waits for it. It keeps the store, unless the folder is temporary. A second Stop does
// nothing.
func (s *Server) Stop() {
	if s.stop != nil {
		s.stop()
	}
}

// Connect connects to the server at url. If url is empty, it first starts a server in a temporary folder. stop closes the
// connection, and stops that server and removes its folder. It may be called more than once.
func Connect(ctx context.Context, url string, opts ...nats.Option) (nc *nats.Conn, stop func(), err error) {
	remove := func() {}
	if url == "" {
		srv, err := Start(ctx, Options{})
		if err != nil {
			return nil, nil, err
		}
		url, remove = srv.URL(), srv.Stop
	}
	nc, err = nats.Connect(url, opts...)
	if err != nil {
		remove()
		return nil, nil, fmt.Errorf("connect to %s: %w", mask.URL(url), mask.Error(err, url))
	}
	return nc, sync.OnceFunc(func() {
		nc.Close()
		remove()
	}), nil
}
