package journal

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/test/servertest"
)

// openAs opens a store with a configuration whose name is the usual one, and whose log goes nowhere unless it is set.
func openAs(ctx context.Context, js jetstream.JetStream, cfg Config) (*Store, error) {
	cfg.Name = "broker"
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return Open(ctx, js, cfg)
}

func openStore(t testing.TB, srv *servertest.Server) *Store {
	t.Helper()
	js := srv.JetStream(t, srv.Connect(t))
	s, err := openAs(t.Context(), js, Config{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func makeConsumer(t testing.TB, s *Store, channel, id string, kind domain.ConsumerType) domain.Consumer {
	t.Helper()
	if _, err := s.Directory.Channels.Find(t.Context(), "", channel); err != nil {
		_, err := s.Directory.Channels.Save(t.Context(), domain.Channel{Stakeholder: domain.Stakeholder{ID: channel, Token: "t"}})
		require.NoError(t, err)
	}
	c, err := s.Directory.Consumers.Save(t.Context(), domain.Consumer{
		Stakeholder: domain.Stakeholder{ID: id, Token: "t"}, Channel: channel, CallbackURL: "http://127.0.0.1/", Type: kind,
	})
	require.NoError(t, err)
	return c
}

func appendMessage(t testing.TB, s *Store, channel, id string, priority int) domain.Message {
	t.Helper()
	m, err := s.Messages.Append(t.Context(), domain.Message{
		ID: id, Channel: channel, Producer: "p", ContentType: "text/plain", Priority: priority,
		Payload: []byte("body of " + id),
	})
	require.NoError(t, err)
	return m
}

// oddNames are IDs that cannot be part of a subject or key unescaped.
var oddNames = []string{"a", "with.dot", "star*", ">", "a b", "=", "ünïcode", "%2F", "a/b", strings.Repeat("x", 200), strings.Repeat(".", 67)}

// An entry of the registry that names another object than its key does not take the place of that object.
func TestRegistryEntryOfAnotherKey(t *testing.T) {
	const shop = "$KV.broker_registry.*.shop $KV.broker_registry.*.shop.>"
	srv := servertest.RunServer(t, servertest.WithAttackers(shop))
	s := shared(t, srv)
	k := makeConsumer(t, s, "bank", "push", domain.Push)
	makeConsumer(t, s, "shop", "push", domain.Push)
	nc := srv.Attacker(t, shop)
	kv, err := s.js.KeyValue(t.Context(), "broker_registry")
	require.NoError(t, err)
	keys, err := kv.Keys(t.Context())
	require.NoError(t, err)
	values := map[string][]byte{}
	for _, key := range keys {
		e, err := kv.Get(t.Context(), key)
		require.NoError(t, err)
		values[key] = e.Value()
	}
	for key, value := range values {
		if strings.Contains(key, "shop") {
			forged := bytes.ReplaceAll(bytes.ReplaceAll(value, []byte("shop"), []byte("bank")), []byte("127.0.0.1"), []byte("127.0.0.9"))
			_, err := nc.Request("$KV.broker_registry."+key, forged, time.Minute)
			require.NoError(t, err)
		}
	}
	last := makeConsumer(t, s, "later", "k", domain.Push) // when it is known, the forged entries were read
	require.NotZero(t, last.Number)
	c, err := s.Directory.Consumers.Find(t.Context(), "bank", "push")
	require.NoError(t, err)
	require.Equal(t, k.Number, c.Number)
	require.Equal(t, "http://127.0.0.1/", c.CallbackURL)
}

func TestRegistryCompareAndSwap(t *testing.T) {
	srv := servertest.RunServer(t)
	a, b := openStore(t, srv), openStore(t, srv)
	for _, id := range oddNames {
		if !utf8.ValidString(id) {
			continue // refused earlier
		}
		p, err := a.Directory.Producers.Save(t.Context(), domain.Producer{Stakeholder: domain.Stakeholder{ID: id, Name: "n", Token: "t"}})
		require.NoError(t, err, "%q", id)
		_, err = b.Directory.Producers.Save(t.Context(), domain.Producer{Stakeholder: domain.Stakeholder{ID: id}})
		require.ErrorIs(t, err, domain.ErrConflict)
		p.Name = "changed"
		q, err := a.Directory.Producers.Save(t.Context(), p)
		require.NoError(t, err)
		require.Equal(t, p.Number, q.Number)
		_, err = a.Directory.Producers.Save(t.Context(), p)
		require.ErrorIs(t, err, domain.ErrConflict)
		require.Eventually(t, func() bool {
			got, err := b.Directory.Producers.Find(t.Context(), "", id)
			return err == nil && got.Revision == q.Revision && got.Name == "changed" && got.Number == p.Number
		}, 5*time.Second, time.Millisecond)
	}
	require.Equal(t, oddNames[len(oddNames)-1], a.Directory.Producers.List("")[0].ID, "the newest is first")
}

func TestAppendIsOncePerID(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	var wg sync.WaitGroup
	var mu sync.Mutex
	stored, refused := 0, 0
	for i := range 400 {
		wg.Go(func() {
			_, err := s.Messages.Append(t.Context(), domain.Message{ID: fmt.Sprint(i % 200), Channel: "c", Payload: []byte("x")})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				stored++
				return
			}
			assert.ErrorIs(t, err, domain.ErrDuplicateMessage)
			refused++
		})
	}
	wg.Wait()
	require.Equal(t, 200, stored)
	require.Equal(t, 200, refused)
	require.Equal(t, 200, s.Index.CountMessages("c"))
}

func TestJobsOfConsumers(t *testing.T) {
	srv := servertest.RunServer(t, servertest.WithOptions(func(o *server.Options) { o.SyncAlways = true }))
	s := openStore(t, srv)
	early := makeConsumer(t, s, "ch", "early", domain.Pull)
	first := appendMessage(t, s, "ch", "m1", 0)
	late := makeConsumer(t, s, "ch", "late", domain.Pull)
	appendMessage(t, s, "ch", "m2", 7)
	appendMessage(t, s, "ch", "m3", 7)
	appendMessage(t, s, "other", "m1", 0)

	ids := func(jobs []domain.Job) (ids []string) {
		for _, j := range jobs {
			ms, err := s.Messages.InOrder(t.Context(), []uint64{j.ID.Seq})
			require.NoError(t, err)
			ids = append(ids, ms[0].ID)
		}
		return ids
	}
	require.Equal(t, []string{"m2", "m3", "m1"}, ids(s.Index.Queue.Queued(early.Number, 10)))
	require.Equal(t, []string{"m2", "m3"}, ids(s.Index.Queue.Queued(late.Number, 10)))
	require.Equal(t, []string{"m2"}, ids(s.Index.Queue.Queued(early.Number, 1)))
	require.Len(t, s.Index.JobsOf("ch", first.Seq), 1)

	job, err := s.Jobs.Job(t.Context(), domain.JobID{Seq: first.Seq, Consumer: early.Number})
	require.NoError(t, err)
	claimed, err := domain.Claim(job, "token", 0, time.Now(), time.Minute)
	require.NoError(t, err)
	put, err := s.Jobs.PutJob(t.Context(), claimed)
	require.NoError(t, err)
	_, err = s.Jobs.PutJob(t.Context(), claimed)
	require.ErrorIs(t, err, domain.ErrConflict, "a second write on the same state")
	require.Equal(t, []string{"m2", "m3"}, ids(s.Index.Queue.Queued(early.Number, 10)))

	// A store that is opened now has the same data, and follows the streams.
	again := openStore(t, srv)
	got, err := again.Jobs.Job(t.Context(), job.ID)
	require.NoError(t, err)
	require.Equal(t, put.Claim, got.Claim)
	require.Equal(t, put.Revision, got.Revision)
	require.WithinDuration(t, put.Due, got.Due, 0)
	require.Equal(t, s.Index.CountJobs(early.Number), again.Index.CountJobs(early.Number))
	put.Status = domain.Delivered
	_, err = again.Jobs.PutJob(t.Context(), put)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		j, err := s.Jobs.Job(t.Context(), job.ID)
		return err == nil && j.Status == domain.Delivered
	}, 5*time.Second, time.Millisecond)

	// A deleted consumer leaves no data, and its ID can be used again.
	require.NoError(t, s.Directory.Consumers.Delete(t.Context(), early))
	require.Empty(t, s.Index.JobsOf("ch", first.Seq))
	reborn := makeConsumer(t, s, "ch", "early", domain.Pull)
	require.NotEqual(t, early.Number, reborn.Number)
	require.Empty(t, s.Index.Queue.Queued(reborn.Number, 10))
	info, err := s.jobStream.Info(t.Context())
	require.NoError(t, err)
	require.Zero(t, info.State.Msgs)
}

func TestTakeHidesUntilGivenBack(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	c := makeConsumer(t, s, "ch", "k", domain.Pull)
	signal := s.Index.Queue.QueuedSignal(c.Number)
	appendMessage(t, s, "ch", "m", 1)
	select {
	case <-signal:
	case <-time.After(5 * time.Second):
		t.Fatal("no signal for a queued job")
	}
	taken := s.Index.Queue.Take(c.Number, 5)
	require.Len(t, taken, 1)
	require.Empty(t, s.Index.Queue.Take(c.Number, 5))
	s.Index.Queue.GiveBack(taken[0])
	require.Len(t, s.Index.Queue.Take(c.Number, 5), 1)
}

func TestPagesOfMessages(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	for i := range 7 {
		appendMessage(t, s, "ch", fmt.Sprint(i), 0)
	}
	list := func(page domain.Page) (ids []string, refs []domain.Message) {
		page.Limit = 3
		refs, err := s.Messages.InOrder(t.Context(), s.Index.MessageSeqs("ch", page))
		require.NoError(t, err)
		for _, r := range refs {
			ids = append(ids, r.ID)
		}
		return ids, refs
	}
	ids, refs := list(domain.Page{})
	require.Equal(t, []string{"6", "5", "4"}, ids)
	ids, refs = list(domain.Page{After: &domain.Position{Seq: refs[2].Seq}})
	require.Equal(t, []string{"3", "2", "1"}, ids)
	next, _ := list(domain.Page{After: &domain.Position{Seq: refs[2].Seq}})
	require.Equal(t, []string{"0"}, next)
	ids, _ = list(domain.Page{Before: &domain.Position{Seq: refs[0].Seq}})
	require.Equal(t, []string{"6", "5", "4"}, ids, "previous is the adjacent page")
}

func TestScheduledMessage(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	c := makeConsumer(t, s, "ch", "k", domain.Pull)
	schedule := func(id string, in time.Duration) error {
		return s.Messages.Schedule(t.Context(), domain.Message{
			ID: id, Channel: "ch", Producer: "p", Priority: 3, Payload: []byte("later"),
			Headers: map[string]string{"A": "b"},
		}, time.Now().Add(in))
	}
	require.NoError(t, schedule("cancelled", time.Hour))
	require.NoError(t, schedule("far", time.Hour))
	require.ErrorIs(t, schedule("far", time.Hour), domain.ErrDuplicateMessage)
	require.Equal(t, 2, s.Index.CountScheduled("ch").Pending)
	require.NoError(t, s.Messages.CancelScheduled(t.Context(), "ch", "cancelled"))
	require.ErrorIs(t, s.Messages.CancelScheduled(t.Context(), "ch", "cancelled"), domain.ErrNotFound)
	// The server's schedule has whole seconds: this one may be broadcast in less than a second.
	queued := s.Index.Queue.QueuedSignal(c.Number)
	require.NoError(t, schedule("soon", time.Second))

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	select {
	case <-queued:
	case <-ctx.Done():
		t.Fatal("the scheduled message was not broadcast")
	}
	jobs := s.Index.Queue.Queued(c.Number, 5)
	require.Len(t, jobs, 1)
	require.Equal(t, 3, jobs[0].Priority)
	ms, err := s.Messages.InOrder(ctx, []uint64{jobs[0].ID.Seq})
	require.NoError(t, err)
	require.Equal(t, "later", string(ms[0].Payload))
	require.Equal(t, "b", ms[0].Headers["A"])
	counts := s.Index.CountScheduled("ch")
	require.Equal(t, 1, counts.Pending)
	require.Equal(t, 1, counts.Dispatched)
	done, err := s.Messages.Scheduled(ctx, "ch", "soon")
	require.NoError(t, err)
	require.False(t, done.DispatchedAt.IsZero())
	require.Equal(t, map[string]domain.MessageStatus{"far": domain.Pending, "soon": domain.Dispatched}, statuses(t, s))
	require.ErrorIs(t, schedule("soon", time.Hour), domain.ErrDuplicateMessage, "the ID is used by a message")
}

// A deletion on one node removes the message or schedule from the lists of the others.
func TestDeletionsAreSentToOtherNodes(t *testing.T) {
	srv := servertest.RunServer(t)
	open := func() *Store {
		s, err := openAs(t.Context(), srv.JetStream(t, srv.Connect(t)), Config{Shared: true})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		return s
	}
	a, b := open(), open()
	for range 20 {
		require.NoError(t, a.Messages.Schedule(t.Context(), domain.Message{ID: "s", Channel: "ch"}, time.Now().Add(time.Hour)))
		require.NoError(t, a.Messages.CancelScheduled(t.Context(), "ch", "s"))
	}
	m := appendMessage(t, a, "ch", "m", 0)
	require.Eventually(t, func() bool { return b.Index.CountMessages("ch") == 1 }, 5*time.Second, time.Millisecond)
	require.Zero(t, a.Index.CountScheduled("ch").Pending)
	require.Zero(t, a.Index.CountScheduled("ch").Dispatched)
	require.Eventually(t, func() bool { return b.Index.CountScheduled("ch") == domain.ScheduledCounts{} }, 5*time.Second, time.Millisecond)
	prune(t, a, []uint64{m.Seq})
	require.Eventually(t, func() bool { return b.Index.CountMessages("ch") == 0 }, 5*time.Second, time.Millisecond)
}

func TestPruneFinished(t *testing.T) {
	srv := servertest.RunServer(t)
	s := openStore(t, srv)
	c := makeConsumer(t, s, "ch", "k", domain.Pull)
	done := appendMessage(t, s, "ch", "done", 0)
	appendMessage(t, s, "ch", "open", 0)
	job, err := s.Jobs.Job(t.Context(), domain.JobID{Seq: done.Seq, Consumer: c.Number})
	require.NoError(t, err)
	job.Status = domain.Delivered
	_, err = s.Jobs.PutJob(t.Context(), job)
	require.NoError(t, err)
	require.Empty(t, s.Index.Finished(func(string) bool { return true }, jobindex.Ages{Before: done.ReceivedAt}, 10), "not old enough")
	seqs := s.Index.Finished(func(string) bool { return true }, jobindex.Ages{Before: time.Now().Add(time.Second)}, 10)
	require.Equal(t, []uint64{done.Seq}, seqs)
	// A job that was queued again since then protects its message.
	settled, err := s.Jobs.Refresh(t.Context(), job.ID)
	require.NoError(t, err)
	settled.Status = domain.Queued
	settled, err = s.Jobs.PutJob(t.Context(), settled)
	require.NoError(t, err)
	prune(t, s, seqs)
	_, err = s.Messages.Message(t.Context(), "ch", "done")
	require.NoError(t, err)
	settled.Status = domain.Delivered
	_, err = s.Jobs.PutJob(t.Context(), settled)
	require.NoError(t, err)
	prune(t, s, seqs)
	_, err = s.Messages.Message(t.Context(), "ch", "done")
	require.ErrorIs(t, err, domain.ErrNotFound)
	require.Equal(t, 1, s.Index.CountMessages("ch"))
	again := openStore(t, srv)
	require.Equal(t, 1, again.Index.CountMessages("ch"))
	require.Len(t, again.Index.Queue.Queued(c.Number, 5), 1)
}

// A job that was settled long ago is read from its record when all its fields are needed. A repeated report of its worker is
// recognized.
func TestSettledJobsAreReadCompletely(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	k := makeConsumer(t, s, "ch", "k", domain.Pull)
	m := appendMessage(t, s, "ch", "m", 3)
	put, err := s.Jobs.PutJob(t.Context(), domain.Job{
		ID: domain.JobID{Seq: m.Seq, Consumer: k.Number}, Status: domain.Dead, Priority: 3, Retries: 4, ChangedAt: time.Now().UTC(), Claim: "token",
		IncrementalTimeout: time.Minute,
	})
	require.NoError(t, err)
	known, err := s.Jobs.Job(t.Context(), put.ID)
	require.NoError(t, err)
	require.Equal(t, domain.Job{ID: put.ID, Status: domain.Dead, ChangedAt: put.ChangedAt, Revision: put.Revision}, known)
	for range 2 {
		got, err := s.Jobs.Refresh(t.Context(), put.ID)
		require.NoError(t, err)
		require.Equal(t, put, got)
	}
	prune(t, s, []uint64{m.Seq})
	_, err = s.Jobs.Refresh(t.Context(), put.ID)
	require.ErrorIs(t, err, domain.ErrNotFound)
}

// The index has all fields of a pull consumer's job that are shown, so no record is read.
func TestCompleteReadsWhatIsShownOnly(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	push, pull := makeConsumer(t, s, "ch", "push", domain.Push), makeConsumer(t, s, "ch", "pull", domain.Pull)
	m := appendMessage(t, s, "ch", "m", 0)
	for _, k := range []domain.Consumer{push, pull} {
		_, err := s.Jobs.PutJob(t.Context(), domain.Job{
			ID: domain.JobID{Seq: m.Seq, Consumer: k.Number}, Status: domain.Delivered, Attempts: 3,
			ChangedAt: time.Now(),
		})
		require.NoError(t, err)
	}
	jobs := s.Index.JobsOf("ch", m.Seq)
	require.Len(t, jobs, 2)
	require.NoError(t, s.Jobs.Complete(t.Context(), jobs))
	for _, j := range jobs {
		require.Equal(t, j.ID.Consumer == push.Number, j.Attempts == 3)
	}
}

// A job that another node has handed out is not unknown here just because its message was not read yet. Otherwise its worker
// would give up, and another would repeat the work.
func TestJobWhoseMessageWasNotReadYet(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	id := domain.JobID{Consumer: makeConsumer(t, s, "ch", "k", domain.Pull).Number, Seq: appendMessage(t, s, "ch", "m", 0).Seq}
	behind := &jobs{base: &base{
		reader: s.reader, messageStream: s.messageStream, Index: jobindex.New(), messagesSeen: jsstream.NewProgress(),
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := behind.Job(ctx, id)
	require.ErrorIs(t, err, domain.ErrUnavailable)
	id.Seq++
	_, err = behind.Job(t.Context(), id)
	require.ErrorIs(t, err, domain.ErrNotFound)
}

func prune(t *testing.T, s *Store, seqs []uint64) {
	t.Helper()
	_, err := s.Messages.Prune(t.Context(), seqs)
	require.NoError(t, err)
}
