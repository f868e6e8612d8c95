package journal

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
	"github.com/jetpull/jetpull/internal/natstest/power"
	"github.com/jetpull/jetpull/test/servertest"
)

// A process is killed in Prune, after the messages were deleted and before their records were. Later starts ignore the records.
func TestKilledInPrune(t *testing.T) {
	dir := t.TempDir()
	s, stop := runOn(t, dir, Config{}, &power.Disk{})
	k := makeConsumer(t, s, "ch", "k", domain.Push)
	other := makeConsumer(t, s, "ch", "other", domain.Push)
	var seqs []uint64
	for _, status := range []domain.JobStatus{domain.Delivered, domain.Dead} {
		m := appendMessage(t, s, "ch", status.String(), 0)
		seqs = append(seqs, m.Seq)
		for _, c := range []domain.Consumer{k, other} {
			j, err := s.Jobs.Job(t.Context(), domain.JobID{Seq: m.Seq, Consumer: c.Number})
			require.NoError(t, err)
			_, err = s.Jobs.PutJob(t.Context(), domain.Settle(j, status, time.Now()))
			require.NoError(t, err)
		}
	}
	kept := appendMessage(t, s, "ch", "kept", 0)
	for _, seq := range seqs {
		done, err := s.Messages.deleteMessage(t.Context(), seq)
		require.NoError(t, err)
		require.True(t, done)
	}
	stop() // as by kill -9

	s, stop = runOn(t, dir, Config{}, &power.Disk{})
	defer stop()
	require.Equal(t, 1, s.Index.CountMessages("ch"))
	require.Empty(t, s.Index.Finished(func(string) bool { return true }, jobindex.Ages{Before: time.Now().Add(time.Hour)}, 100),
		"pruning does not come upon them")
	for _, c := range []domain.Consumer{k, other} {
		counts := s.Index.CountJobs(c.Number)
		require.Equal(t, []int{1, 0, 0}, []int{counts[0].Count, counts[2].Count, counts[3].Count}, "queued, delivered and dead")
	}
	require.Len(t, s.Index.Queue.Queued(k.Number, 10), 1)
	require.Equal(t, kept.Seq, s.Index.Queue.Queued(k.Number, 10)[0].ID.Seq)
}

// A node reads a stream through one server, not necessarily the one it is connected to. If that server is lost, messages of other
// nodes are seen and dispatched within 6 s, as after the loss of a node.
func TestServerOfTheNewsIsLost(t *testing.T) {
	cluster := servertest.RunCluster(t)
	open := func(i int) *Store {
		nc := cluster.Servers[i].Connect(t)
		js, err := jetstream.New(nc)
		require.NoError(t, err)
		s, err := openAs(t.Context(), js, Config{Shared: true, Replicas: 3})
		require.NoError(t, err)
		return s
	}
	// It looks for a node whose feed comes through a server that neither node is connected to.
	leaderOf := func(s *Store) int {
		names := s.messageStream.ConsumerNames(t.Context())
		for name := range names.Name() {
			if leader := cluster.ConsumerLeader(s.cfg.messages(), name); leader > 0 {
				return leader
			}
		}
		return -1
	}
	var a *Store
	lost := -1
	for range 20 {
		a = open(0)
		if lost = leaderOf(a); lost > 0 {
			break
		}
		a.Close()
	}
	require.Positive(t, lost)
	t.Cleanup(a.Close)
	b := open(3 - lost)
	t.Cleanup(b.Close)
	k := makeConsumer(t, a, "ch", "k", domain.Push)
	require.Eventually(t, func() bool { _, err := b.Directory.Consumers.Find(t.Context(), "ch", "k"); return err == nil }, 10*time.Second,
		10*time.Millisecond)
	appendMessage(t, b, "ch", "before", 0)
	require.Eventually(t, func() bool { return len(a.Index.Queue.Queued(k.Number, 10)) == 1 }, 10*time.Second, 10*time.Millisecond)
	cluster.StopServer(lost)
	require.Eventually(t, func() bool {
		_, err := b.Messages.Append(t.Context(), domain.Message{ID: "after", Channel: "ch", Payload: []byte("x")})
		return err == nil || errors.Is(err, domain.ErrDuplicateMessage)
	}, 20*time.Second, 10*time.Millisecond)
	begin := time.Now()
	require.Eventually(t, func() bool { return len(a.Index.Queue.Queued(k.Number, 10)) == 2 }, 60*time.Second, 10*time.Millisecond)
	t.Logf("known to the other node %v after it was stored", time.Since(begin))
}

// A start ends with its context, even if the registry cannot be watched, here for lack of a permission.
func TestStartWithoutAWatchEnds(t *testing.T) {
	srv := servertest.RunServer(t, servertest.WithConfig(`authorization { users = [
		{user: admin, password: p}, {user: broker, password: p, permissions: {publish: {allow: ">", deny: "$JS.API.CONSUMER.CREATE.KV_broker_registry.>"}}}
	] }`))
	nc, err := nats.Connect(srv.URL(), nats.UserInfo("broker", "p"))
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := openAs(ctx, js, Config{Shared: true})
		ended <- err
	}()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.DeadlineExceeded)
	case <-time.After(15 * time.Second):
		require.Fail(t, "the start hangs")
	}
}

// A node that is started without --replicas does not reduce the replicas of existing streams.
func TestNodeWithoutReplicas(t *testing.T) {
	cluster := servertest.RunCluster(t)
	js, err := jetstream.New(cluster.Connect(t))
	require.NoError(t, err)
	a, err := openAs(t.Context(), js, Config{Shared: true, Replicas: 3})
	require.NoError(t, err)
	defer a.Close()
	b, err := openAs(t.Context(), js, Config{Shared: true})
	if err == nil {
		b.Close()
	}
	info, infoErr := a.messageStream.Info(t.Context())
	require.NoError(t, infoErr)
	require.Equal(t, 3, info.Config.Replicas, "the messages have one copy now, without a warning")
	require.ErrorContains(t, err, "replicas")
}

// A long start reports progress, and may take as long as it needs.
func TestAStartThatReadsMuchGoesOn(t *testing.T) {
	dir := t.TempDir()
	s, stop := runOn(t, dir, Config{})
	appendMessage(t, s, "ch", "first", 0)
	_, err := s.js.Publish(t.Context(), "broker.m.ch.foreign", nil)
	require.NoError(t, err)
	stop()
	progress := make(chan struct{})
	var once sync.Once
	s, stop = runOn(t, dir, Config{
		Progress: func() { once.Do(func() { close(progress) }) },
		Logger:   slog.New(slowLog{slog.DiscardHandler, progress}),
	})
	defer stop()
	require.Equal(t, 1, s.Index.CountMessages("ch"))
	select {
	case <-progress:
	default:
		t.Error("the start reported no progress while it read")
	}
}

// slowLog holds up what logs, until the channel is closed, for 10 s at most. So the second message, which the start ignores with a line
// in the log, takes long.
type slowLog struct {
	slog.Handler
	until <-chan struct{}
}

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (l slowLog) Handle(context.Context, slog.Record) error {
	select {
	case <-l.until:
	case <-time.After(10 * time.Second):
	}
	return nil
}
