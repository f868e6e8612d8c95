package test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/registry"
	"github.com/jetpull/jetpull/test/servertest"
)

// bulkProcess is a process that runs operations, which it has in memory.
type bulkProcess struct {
	*bulk.Runner
	table *bulk.Table
	stop  func() // waits
}

func startBulk(t *testing.T, js jetstream.JetStream, name string, kind bulk.Kind) *bulkProcess {
	t.Helper()
	kv, stream, err := jsstream.MakeBucket(t.Context(), js, jetstream.StreamConfig{Name: "operations", Replicas: 1, AllowDirect: true})
	require.NoError(t, err)
	reader := jsstream.NewReader(js, 1, func(context.Context) error { return nil })
	log := slog.New(slog.DiscardHandler)
	r := registry.New(registry.Config{JS: js, KV: kv, Stream: stream, Leader: reader, Shared: true, Log: log})
	p := &bulkProcess{table: bulk.NewTable(r, "o.", 20, func(registry.Entry) (o bulk.Operation, err error) { return o, nil })}
	run, cancel := context.WithCancel(context.Background())
	var reading, running sync.WaitGroup
	require.NoError(t, r.Open(t.Context(), run, &reading, reader))
	p.Runner = bulk.New(bulk.Config{
		Records: p.table, Kinds: map[string]bulk.Kind{"publish": kind}, Process: name, Shared: true, Lost: 400 * time.Millisecond, Exclusive: true,
		Now: time.Now, Log: log,
	})
	working, stopWork := context.WithCancel(run)
	running.Go(func() { p.Run(working) })
	p.stop = sync.OnceFunc(func() {
		stopWork()
		running.Wait()
		cancel()
		reading.Wait()
	})
	t.Cleanup(p.stop)
	return p
}

// On a server an operation that one process began continues in others when that process is cut off, and when they stop. Each item, here a
// message with a subject of its own, is done once, and nothing is left of the operations of a group that is purged.
func TestBulkOperationMovesBetweenProcesses(t *testing.T) {
	srv := servertest.RunServer(t)
	js := srv.JetStream(t, srv.Connect(t))
	const items = 200
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "done", Subjects: []string{"done.*"}})
	require.NoError(t, err)
	done, err := js.Stream(t.Context(), "done")
	require.NoError(t, err)
	kind := func(js jetstream.JetStream) bulk.Kind {
		return bulk.Kind{
			Known: func(context.Context) (uint64, error) { return items, nil },
			Select: func(_ context.Context, o bulk.Operation, from uint64, limit int) (selected []bulk.Item, next uint64, err error) {
				for seq := from; seq <= o.UpTo; seq++ {
					if len(selected) == limit {
						return selected, seq, nil
					}
					selected = append(selected, func(ctx context.Context) (bool, error) {
						subject := "done." + bulk.ID("item", seq)
						_, err := js.Publish(ctx, subject, nil, jetstream.WithExpectLastSequencePerSubject(0))
						if jsstream.Refused(err) {
							return false, nil
						}
						return err == nil, err
					})
				}
				return selected, 0, nil
			},
			Page: 10,
		}
	}
	count := func() uint64 {
		info, err := done.Info(t.Context())
		require.NoError(t, err)
		return info.State.Msgs
	}
	first := srv.JetStream(t, srv.Connect(t))
	a := startBulk(t, first, "a", kind(first))
	b := startBulk(t, js, "b", kind(js))
	o, err := a.Begin(t.Context(), bulk.Operation{Kind: "publish", Group: "g", By: "a test", Spec: json.RawMessage("{}"), Rate: 100})
	require.NoError(t, err)
	require.Equal(t, "g-1", o.ID)
	_, err = b.Begin(t.Context(), bulk.Operation{Kind: "publish", Group: "g"})
	var running *bulk.RunningError
	require.ErrorAs(t, err, &running)
	require.Equal(t, o.ID, running.ID)
	require.Eventually(t, func() bool { return count() > 10 }, 20*time.Second, time.Millisecond)
	first.Conn().Close() // the operation does not notice, and goes on
	require.Eventually(t, func() bool {
		o, err := b.Get(t.Context(), o.ID)
		return err == nil && o.Owner == "b"
	}, 20*time.Second, time.Millisecond)
	before := count()
	require.Eventually(t, func() bool { return count() > before }, 20*time.Second, time.Millisecond)
	c := startBulk(t, js, "c", kind(js))
	b.stop()
	require.Eventually(t, func() bool {
		o, err = c.Get(t.Context(), o.ID)
		return err == nil && o.State == bulk.Done
	}, 20*time.Second, time.Millisecond)
	require.EqualValues(t, items, count())
	require.LessOrEqual(t, o.Done, items)
	require.Equal(t, "a test", o.By)
	next, err := c.Begin(t.Context(), bulk.Operation{Kind: "publish", Group: "g", Spec: json.RawMessage("{}"), Rate: 1})
	require.NoError(t, err)
	require.Equal(t, "g-2", next.ID)
	next, err = c.Cancel(t.Context(), next.ID)
	require.NoError(t, err)
	require.Equal(t, bulk.Cancelled, next.State)
	require.NoError(t, c.table.Purge(t.Context(), "g"))
	c.table.Forget("g")
	require.Empty(t, c.table.All())
}
