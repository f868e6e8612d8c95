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

	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/registry"
	"github.com/jetpull/jetpull/internal/stored"
	"github.com/jetpull/jetpull/test/servertest"
)

// thing is a record of the tests.
type thing struct {
	Name     string
	Size     int
	Revision uint64 `json:"-"`
}

// things is a process that has a registry of things.
type things struct {
	*registry.Table[thing]
	js jetstream.JetStream

	mu      sync.Mutex
	changes [][2]*thing
}

func newThings(t *testing.T, js jetstream.JetStream) *things {
	t.Helper()
	kv, stream, err := jsstream.MakeBucket(t.Context(), js, jetstream.StreamConfig{
		Name: "things", Replicas: 1, AllowDirect: true, AllowMsgTTL: true, SubjectDeleteMarkerTTL: time.Hour,
	})
	require.NoError(t, err)
	reader := jsstream.NewReader(js, 1, func(context.Context) error { return nil })
	r := registry.New(registry.Config{JS: js, KV: kv, Stream: stream, Leader: reader, Shared: true, Log: slog.New(slog.DiscardHandler)})
	s := &things{js: js}
	s.Table = registry.Add(r, registry.Kind[thing]{
		Prefix: "t.", Key: func(id registry.ID) string { return id.Name }, Encode: func(v thing) any { return v },
		Decode: func(e registry.Entry) (registry.ID, thing, error) {
			v := thing{Revision: e.Revision}
			err := json.Unmarshal(e.Value, &v)
			return registry.ID{Name: v.Name}, v, err
		},
		Changed: func(was, is *thing) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changes = append(s.changes, [2]*thing{was, is})
		},
	})
	run, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	require.NoError(t, r.Open(t.Context(), run, &running, reader))
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return s
}

func (s *things) reported() [][2]*thing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

// A write is visible when it returns, in this process and in the bucket. A write with an old revision is refused. Each change is
// reported once, in order. A new process reads the remaining records.
func TestRegistry(t *testing.T) {
	srv := servertest.RunServer(t)
	js := func() jetstream.JetStream {
		js, err := jetstream.New(srv.Connect(t))
		require.NoError(t, err)
		return js
	}
	a, b := newThings(t, js()), newThings(t, js())
	ctx, id := t.Context(), registry.ID{Name: "x"}
	_, err := a.Find(ctx, id)
	require.ErrorIs(t, err, stored.ErrNotFound)

	revision, err := a.Put(ctx, id, thing{Name: "x", Size: 1}, 0, 0)
	require.NoError(t, err)
	known, ok := a.Cached(id)
	require.True(t, ok)
	require.Equal(t, thing{"x", 1, revision}, known)
	found, err := b.Find(ctx, id)
	require.NoError(t, err)
	require.Equal(t, known, found)
	_, err = b.Put(ctx, id, thing{Name: "x", Size: 2}, 0, 0)
	require.ErrorIs(t, err, stored.ErrConflict)

	second, err := b.Put(ctx, id, thing{Name: "x", Size: 2}, revision, 0)
	require.NoError(t, err)
	found, err = a.Fresh(ctx, id)
	require.NoError(t, err)
	require.Equal(t, thing{"x", 2, second}, found)
	require.ErrorIs(t, a.Delete(ctx, id, revision, time.Hour), stored.ErrConflict)
	require.NoError(t, a.Delete(ctx, id, second, time.Hour))
	_, ok = a.Cached(id)
	require.False(t, ok)
	_, err = b.Fresh(ctx, id)
	require.ErrorIs(t, err, stored.ErrNotFound)
	_, ok = b.Cached(id)
	require.False(t, ok, "it was looked for")

	third, err := b.Put(ctx, id, thing{Name: "x", Size: 3}, 0, 0)
	require.NoError(t, err, "a new one takes the place of a deleted one")
	_, err = a.Fresh(ctx, id)
	require.NoError(t, err)
	for _, s := range []*things{a, b} {
		require.Equal(t, [][2]*thing{
			{nil, {"x", 1, revision}}, {{"x", 1, revision}, {"x", 2, second}}, {{"x", 2, second}, nil}, {nil, {"x", 3, third}},
		}, s.reported())
	}
	require.Equal(t, []thing{{"x", 3, third}}, newThings(t, js()).All())
}

// If the bucket does not answer, a record that is not in memory is not "not found".
func TestRegistryWithoutAServer(t *testing.T) {
	srv := servertest.RunServer(t)
	nc := srv.Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	s := newThings(t, js)
	id := registry.ID{Name: "x"}
	revision, err := s.Put(t.Context(), id, thing{Name: "x"}, 0, 0)
	require.NoError(t, err)
	nc.Close()
	_, err = s.Find(t.Context(), id)
	require.NoError(t, err, "it is in memory")
	_, err = s.Fresh(t.Context(), id)
	require.ErrorIs(t, err, stored.ErrUnavailable)
	_, err = s.Find(t.Context(), registry.ID{Name: "y"})
	require.ErrorIs(t, err, stored.ErrUnavailable)
	require.ErrorIs(t, s.Delete(t.Context(), id, revision, 0), stored.ErrUnavailable)
	_, ok := s.Cached(id)
	require.True(t, ok)
}

// An entry that cannot be read is left out, and the others are there.
func TestRegistryLeavesOutWhatItCannotRead(t *testing.T) {
	srv := servertest.RunServer(t)
	js, err := jetstream.New(srv.Connect(t))
	require.NoError(t, err)
	s := newThings(t, js)
	kv, err := js.KeyValue(t.Context(), "things")
	require.NoError(t, err)
	_, err = kv.PutString(t.Context(), "t.bad", "{")
	require.NoError(t, err)
	_, err = kv.PutString(t.Context(), "other.x", "{")
	require.NoError(t, err)
	_, err = s.Put(t.Context(), registry.ID{Name: "x"}, thing{Name: "x"}, 0, 0)
	require.NoError(t, err)
	require.Len(t, s.All(), 1)
	require.Len(t, newThings(t, js).All(), 1)
}
