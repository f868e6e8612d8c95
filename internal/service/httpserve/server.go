package httpserve

import (
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

// Listen serves handler on an address. Read and write bound a request and its answer; 0: nothing does.
func Listen(ctx context.Context, address string, handler http.Handler, read, write time.Duration, log *slog.Logger) (*Server, error) {
	return ListenTLS(ctx, address, "", "", handler, read, write, log)
}

// ListenTLS is Listen with the files of a certificate and its key, which are read again when they have changed. With neither
// it is Listen.
func ListenTLS(ctx context.Context, address, cert, key string, handler http.Handler, read, write time.Duration, log *slog.Logger) (*Server, error) {
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
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w: free the address, or choose another with --listen", err)
	}
	headers := readHeaderTimeout
	if read > 0 {
		headers = min(headers, read)
	}
	s := &Server{listener: listener, served: make(chan error, 1), http: &http.Server{
		Handler: handler, ReadTimeout: read, WriteTimeout: write, ReadHeaderTimeout: headers, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
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
