package store

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// With several replicas nothing is read from a follower, which may be behind. A bucket that allowed it is changed.
func TestStreamsWithCopies(t *testing.T) {
	t.Parallel()
	nc := servertest.RunCluster(t).Connect(t)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "relay_state", Replicas: 3, LimitMarkerTTL: time.Hour})
	require.NoError(t, err)
	s, err := Open(t.Context(), nc, Config{Name: "relay", Replicas: 3, Tombstone: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer s.Close()
	found := 0
	for info := range js.ListStreams(t.Context()).Info() {
		require.False(t, info.Config.AllowDirect, info.Config.Name)
		found++
	}
	require.Equal(t, 8, found)
	for _, name := range []string{"relay_receiver_config", "relay_state"} {
		bucket, err := js.KeyValue(t.Context(), name)
		require.NoError(t, err)
		status, err := bucket.Status(t.Context())
		require.NoError(t, err)
		require.False(t, status.(*jetstream.KeyValueBucketStatus).StreamInfo().Config.AllowDirect)
	}

	// A process that is started without --replicas does not lower their number.
	_, err = Open(t.Context(), nc, Config{Name: "relay", Replicas: 1, Tombstone: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "the stream relay_from_sender has 3 replicas and this process is configured with 1: give --replicas 3")
	for info := range js.ListStreams(t.Context()).Info() {
		require.Equal(t, 3, info.Config.Replicas, info.Config.Name)
	}
}

// The limits that an operator gives a stream stay when a process starts, even if it changes the stream. So a full stream refuses
// messages and drops nothing that was accepted.
func TestLimitsOfAnOperatorStay(t *testing.T) {
	t.Parallel()
	nc := servertest.RunServer(t).Connect(t)
	open := func() *Store {
		s, err := Open(t.Context(), nc, Config{Name: "relay", Replicas: 1, Tombstone: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		return s
	}
	js := open().js
	for _, name := range []string{"relay_from_sender", "KV_relay_messages", "KV_relay_state"} {
		stream, err := js.Stream(t.Context(), name)
		require.NoError(t, err)
		c := stream.CachedInfo().Config
		c.MaxBytes, c.AllowDirect, c.Discard = 1<<30, false, jetstream.DiscardOld
		_, err = js.UpdateStream(t.Context(), c)
		require.NoError(t, err)
		open()
		stream, err = js.Stream(t.Context(), name)
		require.NoError(t, err)
		require.EqualValues(t, 1<<30, stream.CachedInfo().Config.MaxBytes, name)
		require.True(t, stream.CachedInfo().Config.AllowDirect, name)
		require.Equal(t, jetstream.DiscardNew, stream.CachedInfo().Config.Discard, name)
	}
}

// A server whose max_payload cannot hold an entry is refused with the limit in the error.
func TestServerThatTakesNoEntry(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t, servertest.WithOptions(func(o *server.Options) { o.MaxPayload = EntryOverhead }))
	_, err := Open(t.Context(), srv.Connect(t), Config{Name: "relay", Replicas: 1, Tombstone: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "the server's max_payload is 262144 bytes")
	require.ErrorContains(t, err, "set max_payload of the server to more")
}

// An age that cannot be read is an error. 0 would mean that nothing waits.
func TestOldestThatCannotBeRead(t *testing.T) {
	t.Parallel()
	nc := servertest.RunServer(t).Connect(t)
	s, err := Open(t.Context(), nc, Config{Name: "relay", Replicas: 1, Tombstone: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer s.Close()
	age, err := s.Oldest(t.Context(), ToReceiver, "ci", 1)
	require.NoError(t, err, "it was worked off meanwhile")
	require.Zero(t, age)
	require.NoError(t, s.js.DeleteStream(t.Context(), s.StreamName(ToReceiver)))
	_, err = s.Oldest(t.Context(), ToReceiver, "ci", 1)
	require.ErrorIs(t, err, ErrUnavailable)
}

// A bucket has the same configuration as one that the client creates.
func TestBucketsAreOfTheClientsShape(t *testing.T) {
	t.Parallel()
	nc := servertest.RunServer(t).Connect(t)
	s, err := Open(t.Context(), nc, Config{Name: "relay", Replicas: 1, Tombstone: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer s.Close()
	for _, name := range []string{"relay_state", "relay_receiver_config"} {
		_, err = s.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: name, LimitMarkerTTL: time.Hour})
		require.NoError(t, err)
	}
}
