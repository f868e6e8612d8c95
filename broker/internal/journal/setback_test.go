package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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

// setBackUnder sets a stream back under a running broker, or under one that is stopped and started again.
func (f *forgetful) setBackUnder(s *Store, running bool, stream string) *Store {
	if running {
		f.setBack(stream)
		return s
	}
	s.Close()
	f.setBack(stream)
	return f.open()
}

// reported checks that the loss was reported once.
func (f *forgetful) reported(want string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool { return len(f.logs.with("was set back to an older state")) > 0 }, time.Minute, 10*time.Millisecond)
	logged := f.logs.with("level=ERROR")
	require.Len(f.t, logged, 1)
	require.Regexp(f.t, want, strings.TrimSpace(logged[0]))
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
			scheduleAt(t, s, "later", time.Hour)
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
			s = f.setBackUnder(s, running, "broker_messages")
			fresh := stored("fresh")
			require.Equal(t, map[string]domain.MessageStatus{"later": domain.Pending}, statuses(t, s))
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
			f.reported(`stream=broker_messages messages=[123]$`)
		})
	}
}

// The records of jobs are set back under a running and under a stopped broker. A running one has them in memory, and writes those again that it
// needs. A stopped one does the jobs again. No job is dropped.
func TestJobsAreSetBack(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%t", running), func(t *testing.T) {
			f := newForgetful(t)
			s := f.open()
			defer func() { s.Close() }()
			k := makeConsumer(t, s, "ch", "k", domain.Pull)
			put := func(id string, status domain.JobStatus) domain.JobID {
				m := appendMessage(t, s, "ch", id, 0)
				j, err := s.Jobs.PutJob(t.Context(), domain.Job{
					ID: domain.JobID{Seq: m.Seq, Consumer: k.Number}, Status: status, ChangedAt: time.Now(), Due: time.Now().Add(time.Hour),
				})
				require.NoError(t, err)
				return j.ID
			}
			kept := put("kept", domain.Delivered)
			f.keep()
			var done, claimed domain.JobID
			require.Eventually(t, func() bool { return s.Ready() == nil }, time.Minute, 10*time.Millisecond)
			done, claimed = put("done", domain.Delivered), put("claimed", domain.Inflight)
			s = f.setBackUnder(s, running, "broker_jobs")
			state := func(id domain.JobID) (j domain.Job) {
				require.Eventually(t, func() bool {
					var err error
					j, err = s.Jobs.Refresh(t.Context(), id)
					return err == nil
				}, time.Minute, 10*time.Millisecond)
				return j
			}
			f.reported(`stream=broker_jobs messages=2$`)
			want := map[domain.JobID]domain.JobStatus{kept: domain.Delivered, done: domain.Queued, claimed: domain.Queued}
			if running {
				want[done], want[claimed] = domain.Delivered, domain.Inflight
			}
			for id, status := range want {
				require.Equal(t, status, state(id).Status, "job %s", id)
			}
			end := state(claimed)
			end.Status, end.ChangedAt = domain.Delivered, time.Now()
			_, err := s.Jobs.PutJob(t.Context(), end)
			require.NoError(t, err)
			want[claimed] = domain.Delivered
			s.Close()
			s = f.open()
			for id, status := range want {
				require.Equal(t, status, state(id).Status, "job %s after a restart", id)
			}
		})
	}
}

// The registry is set back under a running and under a stopped broker. A running one has it in memory, and writes it again. A stopped one has
// lost objects, which can be created again. Objects that are still there stay.
func TestTheRegistryIsSetBack(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%t", running), func(t *testing.T) {
			f := newForgetful(t)
			s := f.open()
			defer func() { s.Close() }()
			makeConsumer(t, s, "ch", "kept", domain.Pull)
			f.keep()
			require.Eventually(t, func() bool { return s.Ready() == nil }, time.Minute, 10*time.Millisecond)
			makeConsumer(t, s, "ch", "lost", domain.Pull)
			makeConsumer(t, s, "other", "lost", domain.Pull) // and its channel
			m := appendMessage(t, s, "ch", "m", 0)
			s = f.setBackUnder(s, running, "KV_broker_registry")
			f.reported(`stream=KV_broker_registry messages=[3-9]$`)
			there := func(channel, id string) (c domain.Consumer, ok bool) {
				require.Eventually(t, func() bool {
					var err error
					c, err = s.Directory.Consumers.Refresh(t.Context(), channel, id)
					ok = err == nil
					return ok || errors.Is(err, domain.ErrNotFound)
				}, time.Minute, 10*time.Millisecond)
				return c, ok
			}
			kept, ok := there("ch", "kept")
			require.True(t, ok)
			j, ok := s.Index.Lookup(domain.JobID{Seq: m.Seq, Consumer: kept.Number})
			require.True(t, ok && j.Status == domain.Queued, "the job of a consumer that is still there")
			if running {
				require.Eventually(t, func() bool {
					c, _ := there("ch", "lost")
					c.CallbackURL = "http://127.0.0.1/changed"
					_, err := s.Directory.Consumers.Save(t.Context(), c)
					return err == nil
				}, time.Minute, 10*time.Millisecond, "an object that was lost can be changed")
			} else {
				_, ok := there("ch", "lost")
				require.False(t, ok)
				require.Greater(t, makeConsumer(t, s, "ch", "lost", domain.Pull).Number, kept.Number+3, "it has the number of one that is gone")
			}
			s.Close()
			s = f.open()
			_, ok = there("ch", "lost")
			require.True(t, ok)
			_, ok = there("other", "lost")
			require.Equal(t, running, ok)
		})
	}
}
