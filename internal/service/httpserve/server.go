// Package httpserve has the shared parts of the systems' HTTP interfaces: routes, errors in the form of each system's contract, tokens, JSON, and a
// listener that starts and stops cleanly.
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
	// maxHeaderBytes limits the headers of a request. Larger headers get a 431.
	maxHeaderBytes = 64 << 10
	// readHeaderTimeout limits the time in which a client must send the headers. It prevents slow clients from holding connections even if there is
	// no limit for a whole request.
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
)

// Server is a listener with its HTTP server.
type Server struct {
	http     *http.Server
	listener net.Listener
	served   chan error
}

// Config configures a Server.
type Config struct {
	Address string
	// Flag is the name of the flag for Address, for error messages. Empty means --listen.
	Flag    string
	Handler http.Handler
	// Cert and Key are the files of a certificate and its key. They are read again when they change. If both are empty, there is no TLS.
	Cert, Key string
	// Read limits the time in which a request must arrive. If it is 0, only the time for the headers is limited.
	Read time.Duration
	// Write limits the time for a request and its response, including waits. If it is 0, only the client's reading of the response is limited.
	Write time.Duration
	// PerAddress is the maximum number of connections from one address. 0 means no limit.
	PerAddress int
	// Proxies lists the addresses and networks of reverse proxies. Their headers about clients are trusted, and their connections are not limited.
	Proxies []string
	// Public is the URL at which clients reach the listener. Empty means the URL that they request, or that a proxy reports.
	Public string
	Log    *slog.Logger

	stall time.Duration // 0 means stallTime
}

// Listen starts a server, which runs until Stop.
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
	headers := readHeaderTimeout
	if cfg.Read > 0 {
		headers = min(headers, cfg.Read)
	}
	s := &Server{listener: listener, served: make(chan error, 1), http: &http.Server{
		Handler: pace(based(public, proxies, cfg.Handler), cmp.Or(cfg.stall, stallTime)), ReadTimeout: cfg.Read,
		WriteTimeout: cfg.Write, ReadHeaderTimeout: headers, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ConnState: newConnectionLimit(cfg.PerAddress, proxies, log).changed, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
	if secure == nil {
		go func() { s.served <- s.http.Serve(listener) }()
		return s, nil
	}
	s.http.TLSConfig = &tls.Config{GetCertificate: secure.get, MinVersion: tls.VersionTLS12}
	go func() { s.served <- s.http.ServeTLS(listener, "", "") }()
	return s, nil
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Wait returns nil when ctx ends, or an error when the listener fails.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.served:
		s.served <- err
		return fmt.Errorf("serve: %w", err)
	}
}

// Stop refuses new requests and waits for those in progress, for at most drain, or until ctx ends.
func (s *Server) Stop(ctx context.Context, drain time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("requests were cut: %w", err), s.http.Close())
	}
	return nil
}
