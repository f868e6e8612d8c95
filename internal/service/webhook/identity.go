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
	"sync"
	"time"
)

// identityFiles are the files of an identity, as in a Kubernetes TLS secret: a client certificate with its key, and certificate authorities to trust
// in addition to the system's.
var identityFiles = [...]string{"tls.crt", "tls.key", "ca.crt"}

// lookEvery is the minimum interval between two checks of an identity's files. A request causes the check.
const lookEvery = time.Second

// identity is the client for one consumer or receiver. Its lock is held while its files are read, which does not delay requests of others.
type identity struct {
	mu     sync.Mutex
	http   *http.Client
	err    error
	files  [len(identityFiles)]fileState
	looked time.Time
}

type fileState struct {
	at   time.Time
	size int64
}

// of returns the client for an identity. An identity without files shares a client with all others. If files have changed, of creates another client,
// and connections of the old one end when they are idle.
func (c *Client) of(name string) (*http.Client, error) {
	if c.policy.Certificates == "" || name == "" {
		return c.http, nil
	}
	c.mu.Lock()
	i := c.identities[name]
	if i == nil {
		i = &identity{http: c.http}
		c.identities[name] = i
	}
	c.mu.Unlock()
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Since(i.looked) >= lookEvery {
		i.looked = time.Now()
		c.read(i, filepath.Join(c.policy.Certificates, filepath.FromSlash(name)))
	}
	return i.http, i.err
}

// read reads the files of an identity if they have changed or could not be read before. The caller holds the identity's lock.
func (c *Client) read(i *identity, dir string) {
	files, err := look(dir)
	if err == nil && i.err == nil && files == i.files {
		return
	}
	client := c.http
	if err == nil && files != [len(identityFiles)]fileState{} {
		var config *tls.Config
		if config, err = load(dir, files); err == nil {
			client = c.over(config)
		}
	}
	if i.http != c.http {
		i.http.CloseIdleConnections()
	}
	if err != nil {
		err = fmt.Errorf("%w: egress-certificates: %w", ErrNotSent, err)
	}
	i.http, i.err, i.files = client, err, files
}

// look returns the states of an identity's files. The state of a missing file is zero.
func look(dir string) (files [len(identityFiles)]fileState, err error) {
	if _, err := os.Stat(dir); err != nil && !errors.Is(err, fs.ErrPermission) {
		return files, nil // for example, the name is too long for a folder
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
	var err error
	config.RootCAs, err = Authorities(path(2))
	return config, err
}

// Authorities returns the system's certificate authorities and those in a PEM file.
func Authorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the authorities of the system: %w", err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return roots, nil
}
