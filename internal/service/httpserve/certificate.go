package httpserve

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// certificateLook is the minimum interval between two reads of a certificate's files. A connection causes the read.
const certificateLook = time.Second

// certificate is a certificate whose files may change. It reads them again.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	now    *tls.Certificate
	failed string // why the files could not be used the last time, or empty
	readAt time.Time
}

func loadCertificate(cert, key string, log *slog.Logger) (*certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("TLS certificate %s with key %s: %w", cert, key, err)
	}
	return &certificate{cert: cert, key: key, log: log, now: &pair}, nil
}

// get returns the current certificate. Files are replaced one by one: while they do not match, get returns the previous one, and logs that once.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.readAt) < certificateLook {
		return c.now, nil
	}
	c.readAt = time.Now()
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		if c.failed != err.Error() {
			c.log.Warn("the certificate cannot be read again: the one from before goes on", "cert", c.cert, "key", c.key, "error", err)
		}
		c.failed = err.Error()
		return c.now, nil
	}
	if !slices.EqualFunc(pair.Certificate, c.now.Certificate, bytes.Equal) {
		c.now = &pair
		c.log.Info("the certificate was read again", "cert", c.cert)
	}
	c.failed = ""
	return c.now, nil
}
