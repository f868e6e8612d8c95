package journal

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/natsembed"
)

// forgetful is a server of other processes that can set a stream back.
type forgetful struct {
	t    *testing.T
	srv  *natsembed.Server
	old  string // the store at the last call of keep
	js   jetstream.JetStream
	logs lines
}

func newForgetful(t *testing.T) *forgetful {
	f := &forgetful{t: t, old: filepath.Join(t.TempDir(), "old")}
	f.srv = f.start(natsembed.Options{Dir: t.TempDir()})
	nc, err := nats.Connect(f.srv.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { nc.Close(); f.srv.Stop() })
	f.js, err = jetstream.New(nc)
	require.NoError(t, err)
	return f
}

func (f *forgetful) start(o natsembed.Options) *natsembed.Server {
	srv, err := natsembed.Start(f.t.Context(), o)
	require.NoError(f.t, err)
	return srv
}

// while runs do while the server is stopped.
func (f *forgetful) while(do func(dir string)) {
	dir, port := f.srv.Dir(), f.srv.Port()
	f.srv.Stop()
	do(dir)
	f.srv = f.start(natsembed.Options{Dir: dir, Port: port})
}

// keep keeps a copy of the store.
func (f *forgetful) keep() {
	f.while(func(dir string) { require.NoError(f.t, os.CopyFS(f.old, os.DirFS(dir))) })
}

// setBack sets a stream back to the copy.
func (f *forgetful) setBack(stream string) {
	f.while(func(dir string) {
		folder := filepath.Join("jetstream", "$G", "streams", stream)
		require.NoError(f.t, os.RemoveAll(filepath.Join(dir, folder)))
		require.NoError(f.t, os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(f.old, folder))))
	})
}

func (f *forgetful) open() *Store {
	s, err := openAs(f.t.Context(), f.js, Config{Shared: true, Logger: slog.New(slog.NewTextHandler(&f.logs, nil))})
	require.NoError(f.t, err)
	return s
}

// The stream of messages is set back under a running and under a stopped broker. It goes on: what is still there is not dropped, and a new
// message does not get the jobs of one that is gone. The loss is reported once.
func TestMessagesAreSetBack(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%t", running), func(t *testing.T) {
			f := newForgetful(t)
			s := f.open()
			defer func() { s.Close() }()
			k := makeConsumer(t, s, "ch", "k", domain.Push)
			kept := appendMessage(t, s, "ch", "kept", 0)
			f.keep()
			stored := func(id string) (m domain.Message) {
				require.Eventually(t, func() bool {
					var err error
					m, err = s.Messages.Append(t.Context(), domain.Message{ID: id, Channel: "ch"})
					return err == nil
				}, time.Minute, 10*time.Millisecond)
				return m
			}
			var last domain.Message
			for i := range 3 {
				last = stored(fmt.Sprint("gone-", i))
				_, err := s.Jobs.PutJob(t.Context(), domain.Job{
					ID: domain.JobID{Seq: last.Seq, Consumer: k.Number}, Status: domain.Delivered, ChangedAt: time.Now(),
				})
				require.NoError(t, err)
			}
			if running {
				f.setBack("broker_messages")
			} else {
				s.Close()
				f.setBack("broker_messages")
				s = f.open()
			}
			fresh := stored("fresh")
			require.Greater(t, fresh.Seq, last.Seq, "it has the sequence of a message that is gone, and so its jobs")
			for _, id := range []string{"kept", "fresh"} {
				_, err := s.Messages.Message(t.Context(), "ch", id)
				require.NoError(t, err)
			}
			for _, seq := range []uint64{kept.Seq, fresh.Seq} {
				require.Eventually(t, func() bool {
					j, ok := s.Index.Lookup(domain.JobID{Seq: seq, Consumer: k.Number})
					return ok && j.Status == domain.Queued
				}, time.Minute, 10*time.Millisecond)
			}
			require.Eventually(t, func() bool { return len(f.logs.with("was set back to an older state")) > 0 }, time.Minute, 10*time.Millisecond)
			logged := f.logs.with("level=ERROR")
			require.Len(t, logged, 1)
			require.Regexp(t, `messages=[123]\b`, logged[0])
		})
	}
}
