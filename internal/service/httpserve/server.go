// Package httpserve has the shared parts of the systems' HTTP interfaces: routes with errors in the form of each system's
// contract, tokens, JSON, and a listener that starts and shuts down cleanly.
package httpserve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// maxHeaderBytes bounds the headers of a request; more is a 431.
	maxHeaderBytes = 64 << 10
	// readHeaderTimeout bounds the time that a client takes to send them, which keeps slow clients from holding connections
	// even where a whole request may take as long as it wants.
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
)

// Server is a listener with its HTTP server.
type Server struct {
	http     *http.Server
	listener net.Listener
	served   chan error
}

// Config says what a server serves, and within which limits.
type Config struct {
	Address string
	// Flag is the command line's for Address, for errors; "--listen" if empty.
	Flag    string
	Handler http.Handler
	// Cert and Key are the files of a certificate and its key, which are read again when they change. Both empty: no TLS.
	Cert, Key string
	// Read bounds the time in which a request comes in. 0: only that of its headers is bounded.
	Read time.Duration
	// Write bounds a request with its answer, waits included. 0: only the client's reading of the answer is bounded.
	Write time.Duration
	// PerAddress is how many connections an address may have. 0: any number.
	PerAddress int
	// Proxies are the addresses and networks of reverse proxies. They are believed about their clients, and may have any number of connections.
	Proxies []string
	// Public is the URL by which clients reach the listener; empty: the one that they use, or that a proxy says.
	Public string
	Log    *slog.Logger

	stall time.Duration // 0: stallTime
}

// Listen serves as cfg says until Stop.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	cert, key, log := cfg.Cert, cfg.Key, cfg.Log
	var secure *certificate
	var err error
	switch {
	case (cert == "") != (key == ""):
		return nil, fmt.Errorf("TLS certificate %q with key %q: give both", cert, key)
	case cert != "":
		if secure, err = loadCertificate(cert, key, log); err != nil {
			return nil, err
		}
	}
	proxies, err := ParseProxies(cfg.Proxies)
	if err != nil {
		return nil, fmt.Errorf("trusted-proxies: %w", err)
	}
	public, err := ParsePublicURL(cfg.Public)
	if err != nil {
		return nil, fmt.Errorf("public-url: %w", err)
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w; free the address, or choose another with %s", err, cmp.Or(cfg.Flag, "--listen"))
	}
	listener = limitConnections(listener, cfg.PerAddress, proxies, log)
	headers := readHeaderTimeout
	if cfg.Read > 0 {
		headers = min(headers, cfg.Read)
	}
	s := &Server{listener: listener, served: make(chan error, 1), http: &http.Server{
		Handler: pace(based(public, proxies, proxies.forwarded(cfg.Handler)), cmp.Or(cfg.stall, stallTime)), ReadTimeout: cfg.Read,
		WriteTimeout: cfg.Write, ReadHeaderTimeout: headers, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
	if secure == nil {
		go func() { s.served <- s.http.Serve(listener) }()
		return s, nil
	}
	s.http.TLSConfig = &tls.Config{GetCertificate: secure.get, MinVersion: tls.VersionTLS12}
	go func() { s.served <- s.http.ServeTLS(listener, "", "") }()
	return s, nil
}

// Addr is the address that it listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Wait returns when ctx ends, with nil, or when the listener failed.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.served:
		s.served <- err
		return fmt.Errorf("serve: %w", err)
	}
}

// Stop takes no new requests and waits for those in progress, up to drain and the end of ctx.
func (s *Server) Stop(ctx context.Context, drain time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests were cut: %w", err), s.http.Close())
	}
	return nil
}
