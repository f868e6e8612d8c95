package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/service"
)

const (
	// startPause is between two looks at what a start waits for.
	startPause = 250 * time.Millisecond
	// startReminder is between two lines in the log about one wait.
	startReminder = 30 * time.Second
	// startSpace is what a disk must have for a start: the server writes the settings of its streams, and the broker tries it out.
	startSpace = 4 << 20
)

// await calls look until it finds what the start waits for, ctx ends, or look fails for good. The log says what is waited for,
// and so does /readyz, without the reason, which may name addresses and folders.
func (n *Node) await(ctx context.Context, what string, look func() error, passes func(error) bool) error {
	var said time.Time
	for {
		err := look()
		if err == nil {
			if !said.IsZero() {
				n.log.Info("the start goes on", "waited for", what)
			}
			n.waitsFor.Store(nil)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if !passes(err) {
			return err
		}
		n.waitsFor.Store(&what)
		if time.Since(said) > startReminder {
			said = time.Now()
			n.log.Warn("the start waits", "for", what, "reason", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(startPause):
		}
	}
}

// starting is what requests are answered with while the broker starts.
func (n *Node) starting() string {
	if what := n.waitsFor.Load(); what != nil {
		return "the broker starts: it waits for " + *what
	}
	return "the broker starts: try again in a moment"
}

// dial connects to the servers that url names. One that is not there yet is waited for; one that refuses is not.
func (n *Node) dial(ctx context.Context, opts []nats.Option) error {
	return n.await(ctx, "its NATS servers", func() (err error) {
		n.nc, err = service.Connect(n.cfg.NATS.URL, n.cfg.NATS.Creds, opts...)
		return err
	}, unreached)
}

// unreached tells whether a connection failed because there was no server, or none that answered.
func unreached(err error) bool {
	if _, network := errors.AsType[*net.OpError](err); network {
		return true
	}
	if _, unknown := errors.AsType[*net.DNSError](err); unknown {
		return true
	}
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, io.EOF)
}

// awaitSpace waits until the embedded server can start: without space it could not write, and the start would fail. It has no
// bound, as a broker that runs has none when its disk fills up. A disk of unknown space is tried.
func (n *Node) awaitSpace(ctx context.Context) error {
	look := n.disk
	if look == nil {
		look = diskSpace
	}
	return n.await(ctx, "space on the disk of its store", func() error {
		dir, err := filepath.Abs(n.cfg.NATS.StoreDir)
		if err != nil {
			return nil //nolint:nilerr // a disk of unknown space is tried
		}
		free, _, err := look(dir)
		for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) { // the first start makes it
			dir = filepath.Dir(dir)
			free, _, err = look(dir)
		}
		if err == nil && free < startSpace {
			return fmt.Errorf("%s has %d bytes free, and a start needs %d: free some, or name another folder with --store-dir", dir, free, startSpace)
		}
		return nil
	}, func(error) bool { return true })
}
