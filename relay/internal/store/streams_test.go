package store

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// With copies nothing is read from a follower, which may be behind; a bucket that was is changed.
func TestNothingIsReadFromFollowers(t *testing.T) {
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
	require.Equal(t, 10, found)
	for _, bucket := range []jetstream.KeyValue{s.config, s.state} {
		status, err := bucket.Status(t.Context())
		require.NoError(t, err)
		require.False(t, status.(*jetstream.KeyValueBucketStatus).StreamInfo().Config.AllowDirect)
	}
}

// A bucket is as the client makes one.
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
