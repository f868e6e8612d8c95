// Package embed runs a NATS server with JetStream and a file store inside the
// process, for commands, examples and demonstrations that need no server of
// their own.
package embed

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// startTimeout bounds the start; recovering a store of many gigabytes
	// takes a while.
	startTimeout = 60 * time.Second
	// readyPoll is how often a failed start is looked for.
	readyPoll = 100 * time.Millisecond
	host      = "127.0.0.1"
)

// Options say how a server is run.
type Options struct {
	// Dir is the folder of the store. It is made if it is missing, and no two
	// servers can use it at the same time.
	Dir string
	// Port is the TCP port on 127.0.0.1; 0 means any that is free.
	Port int
	// SyncAlways makes the server sync every write to disk before it
	// acknowledges it. Otherwise it syncs every SyncInterval, by default the
	// server's own 2 minutes.
	SyncAlways   bool
	SyncInterval time.Duration
	// Logger gets the server's warnings and errors; nil discards them.
	Logger *slog.Logger
}

// Server is a running server. It listens on loopback only.
type Server struct {
	srv  *server.Server
	dir  string
	lock *os.File
}

// Start starts a server and waits until it takes connections. The caller calls
// [Server.Stop].
func Start(o Options) (*Server, error) {
	if o.Dir == "" {
		return nil, errors.New("embed: Dir is empty; name the folder of the store")
	}
	if o.Port < 0 || o.Port > 65535 {
		return nil, fmt.Errorf("embed: port %d is not in 0..65535", o.Port)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("embed: store folder %q: %w", o.Dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("embed: make the store folder: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	srv, err := run(dir, o)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return &Server{srv: srv, dir: dir, lock: lock}, nil
}

func run(dir string, o Options) (*server.Server, error) {
	port := o.Port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	srv, err := server.NewServer(&server.Options{
		ServerName:   "jetpull",
		Host:         host,
		Port:         port,
		JetStream:    true,
		StoreDir:     dir,
		SyncAlways:   o.SyncAlways,
		SyncInterval: o.SyncInterval,
		NoSigs:       true,
	})
	if err != nil {
		return nil, fmt.Errorf("embed: set up the server on %s: %w", dir, err)
	}
	log := newServerLog(o.Logger)
	srv.SetLoggerV2(log, false, false, false)
	srv.Start()
	if err := awaitReady(srv, log); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, fmt.Errorf("embed: start the server on %s, port %s: %w", dir, portText(o.Port), err)
	}
	return srv, nil
}

func portText(port int) string {
	if port == 0 {
		return "any"
	}
	return strconv.Itoa(port)
}

// awaitReady waits until the server takes connections. A server that cannot
// open its port or its store only logs that, so a fatal line ends the wait too.
func awaitReady(srv *server.Server, log *serverLog) error {
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); {
		if err := log.fatal(); err != nil {
			return err
		}
		if srv.ReadyForConnections(readyPoll) {
			if !srv.JetStreamEnabled() {
				return fmt.Errorf("the server runs without JetStream: %w", log.last())
			}
			return nil
		}
	}
	return fmt.Errorf("not ready within %v: %w", startTimeout, log.last())
}

// URL is the address for clients.
func (s *Server) URL() string {
	port := s.srv.Addr().(*net.TCPAddr).Port
	return "nats://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// Dir is the folder of the store.
func (s *Server) Dir() string { return s.dir }

// Stop shuts the server down in good order and waits for it. The store stays.
func (s *Server) Stop() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
	_ = s.lock.Close()
}
