package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/bench/internal/child"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/natsembed"
)

// slowLinkDelay is the one-way latency of the slow link. A round trip takes 5 ms.
const slowLinkDelay = 2500 * time.Microsecond

// system is the server and an administrator's connection.
type system struct {
	process *child.Process
	dir     string
	admin   jetstream.JetStream
}

var server system

func TestMain(m *testing.M) {
	child.Main(serve)
	code := 1
	err := server.start()
	if err == nil {
		code = m.Run()
		err = server.stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: server:", err)
		code = 1
	}
	os.Exit(code)
}

// serve runs a nats-server with a file store and default settings, and a proxy that adds latency. The figures of the measuring
// process do not include their work.
func serve(ctx context.Context, args []string, ready func(urls ...string)) error {
	srv, err := natsembed.Start(ctx, natsembed.Options{Dir: args[0], Name: "bench"})
	if err != nil {
		return err
	}
	defer srv.Stop()
	proxy, err := natstest.ListenProxy(srv.URL())
	if err != nil {
		return err
	}
	defer proxy.Close()
	proxy.Delay(slowLinkDelay)
	ready(srv.URL(), proxy.URL())
	<-ctx.Done()
	return nil
}

// start starts the server with a store in the system's temporary folder, which should be on a disk.
func (s *system) start() (err error) {
	if s.dir, err = os.MkdirTemp("", "jetpull-bench-"); err != nil {
		return err
	}
	if s.process, err = child.Start(s.dir); err != nil {
		return err
	}
	if s.admin, err = s.connect(false); err != nil {
		return err
	}
	// When the last stream is deleted, the server removes the folder of all streams, perhaps while it stores the first file of the next stream.
	_, err = s.admin.CreateStream(context.Background(), jetstream.StreamConfig{Name: "STAYS"})
	return err
}

func (s *system) stop() error {
	s.admin.Conn().Close()
	return errors.Join(s.process.Stop(), os.RemoveAll(s.dir))
}

// connect opens a connection, over the slow link if slow is true.
func (s *system) connect(slow bool, opts ...nats.Option) (jetstream.JetStream, error) {
	url := s.process.URLs[0]
	if slow {
		url = s.process.URLs[1]
	}
	conn, err := nats.Connect(url, append(opts, nats.Name("bench"))...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	return jetstream.New(conn)
}

const (
	payloadSize  = 128
	publishBurst = 4_000
)

// fill creates a stream with n messages. The payload of each begins with its index.
func (s *system) fill(ctx context.Context, stream string, n int) error {
	if _, err := s.admin.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{stream}}); err != nil {
		return fmt.Errorf("create stream %s: %w", stream, err)
	}
	for first := 0; first < n; first += publishBurst {
		for i := first; i < min(first+publishBurst, n); i++ {
			payload := make([]byte, payloadSize)
			binary.BigEndian.PutUint64(payload, uint64(i))
			if _, err := s.admin.PublishAsync(stream, payload); err != nil {
				return fmt.Errorf("fill stream %s: %w", stream, err)
			}
		}
		select {
		case <-s.admin.PublishAsyncComplete():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	full, err := s.admin.Stream(ctx, stream)
	if err != nil {
		return err
	}
	if got := full.CachedInfo().State.Msgs; got != uint64(n) {
		return fmt.Errorf("stream %s has %d messages, not %d", stream, got, n)
	}
	return nil
}
