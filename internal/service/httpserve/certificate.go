package httpserve

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateLook is how often the files of a certificate are looked at, at most: when somebody connects.
const certificateLook = time.Second

// certificate is one that is read again when its files have changed.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu       sync.Mutex
	now      *tls.Certificate
	state    [2]fileState // of the files that now was read from
	failed   [2]fileState // of those that could not be used last
	lookedAt time.Time
}

type fileState struct {
	at   time.Time
	size int64
}

func loadCertificate(cert, key string, log *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, log: log}
	if err := c.read(); err != nil {
		return nil, fmt.Errorf("TLS certificate %s with key %s: %w", cert, key, err)
	}
	return c, nil
}

// read reads the files if they have changed. A certificate is replaced file by file: one that does not fit yet is no error
// while there is another.
func (c *certificate) read() error {
	state, err := c.look()
	if err != nil || state == c.state {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err == nil {
		c.now, c.state, c.failed = &pair, state, [2]fileState{}
		return nil
	}
	// Tried again, since what is in the way may leave no trace in the files' times, such as their owner; but said once.
	if c.now != nil && state == c.failed {
		return nil
	}
	c.failed = state
	return err
}

func (c *certificate) look() (state [2]fileState, err error) {
	for i, path := range []string{c.cert, c.key} {
		info, err := os.Stat(path)
		if err != nil {
			return state, err
		}
		state[i] = fileState{info.ModTime(), info.Size()}
	}
	return state, nil
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.lookedAt) >= certificateLook {
		c.lookedAt = time.Now()
		before := c.now
		switch err := c.read(); {
		case err != nil:
			c.log.Warn("the certificate cannot be read again: the one from before goes on", "cert", c.cert, "key", c.key, "error", err)
		case c.now != before:
			c.log.Info("the certificate was read again", "cert", c.cert)
		}
	}
	return c.now, nil
}
