package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// identityFiles are the files of an identity, as in a Kubernetes secret for TLS: a client certificate with its key, and the authorities that are
// trusted in addition to the system's.
var identityFiles = [...]string{"tls.crt", "tls.key", "ca.crt"}

// lookEvery is how often the files of an identity are looked at, at most: when a request is made.
const lookEvery = time.Second

// identity is the way to make requests for one consumer or receiver.
type identity struct {
	http   *http.Client
	err    error
	files  [len(identityFiles)]fileState
	looked time.Time
}

type fileState struct {
	at   time.Time
	size int64
}

// of returns the client for an identity. It is that of all others if the identity has no files. Changed files make a new one, and connections of
// the old one end when they are idle.
func (c *Client) of(name string) (*http.Client, error) {
	if c.policy.Certificates == "" || name == "" {
		return c.http, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	was, known := c.identities[name]
	if known && time.Since(was.looked) < lookEvery {
		return was.http, was.err
	}
	now := identity{http: c.http, looked: time.Now()}
	dir := filepath.Join(c.policy.Certificates, filepath.FromSlash(name))
	now.files, now.err = look(dir)
	switch {
	case now.err != nil || now.files == [len(identityFiles)]fileState{}:
	case known && was.err == nil && was.files == now.files:
		now.http = was.http
	default:
		var config *tls.Config
		if config, now.err = load(dir, now.files); now.err == nil {
			now.http = c.over(config)
		}
	}
	if known && was.http != now.http && was.http != c.http {
		was.http.CloseIdleConnections()
	}
	if now.err != nil {
		now.err = fmt.Errorf("%w: egress-certificates: %w", ErrNotSent, now.err)
	}
	c.identities[name] = now
	return now.http, now.err
}

// look returns the states of an identity's files. That of a file that does not exist is zero.
func look(dir string) (files [len(identityFiles)]fileState, err error) {
	if _, err := os.Stat(dir); err != nil && !errors.Is(err, fs.ErrPermission) {
		return files, nil // such as for a name that is too long for a folder
	}
	for i, name := range identityFiles {
		info, err := os.Stat(filepath.Join(dir, name))
		switch {
		case err == nil:
			files[i] = fileState{info.ModTime(), info.Size()}
		case !errors.Is(err, fs.ErrNotExist):
			return files, err
		}
	}
	return files, nil
}

// load reads the files that exist.
func load(dir string, files [len(identityFiles)]fileState) (*tls.Config, error) {
	path := func(i int) string { return filepath.Join(dir, identityFiles[i]) }
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if none := (fileState{}); files[0] != none || files[1] != none {
		pair, err := tls.LoadX509KeyPair(path(0), path(1))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path(0), err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if files[2] == (fileState{}) {
		return config, nil
	}
	pem, err := os.ReadFile(path(2))
	if err != nil {
		return nil, err
	}
	if config.RootCAs, err = x509.SystemCertPool(); err != nil {
		return nil, fmt.Errorf("read the authorities of the system: %w", err)
	}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", path(2))
	}
	return config, nil
}
