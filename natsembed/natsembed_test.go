package natsembed_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/natsembed"
)

func start(t *testing.T, o natsembed.Options) *natsembed.Server {
	t.Helper()
	srv, err := natsembed.Start(t.Context(), o)
	require.NoError(t, err)
	return srv
}

func connect(t *testing.T, url string) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return nc, js
}

func TestStoreOutlivesTheServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by", "start")
	for _, sync := range []natsembed.Sync{natsembed.SyncGroup, natsembed.SyncEach, natsembed.SyncEvery(time.Second)} {
		srv := start(t, natsembed.Options{Dir: dir, Sync: sync})
		nc, js := connect(t, srv.URL())
		_, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
		require.NoError(t, err)
		_, err = js.Publish(t.Context(), "s", []byte("kept"))
		require.NoError(t, err)
		nc.Close()
		srv.Stop()
	}
	srv := start(t, natsembed.Options{Dir: dir})
	defer srv.Stop()
	_, js := connect(t, srv.URL())
	stream, err := js.Stream(t.Context(), "S")
	require.NoError(t, err)
	require.EqualValues(t, 3, stream.CachedInfo().State.Msgs)
	require.Equal(t, dir, srv.Dir())
}

func TestOneServerPerStore(t *testing.T) {
	dir := t.TempDir()
	first := start(t, natsembed.Options{Dir: dir})
	_, err := natsembed.Start(t.Context(), natsembed.Options{Dir: dir})
	require.ErrorContains(t, err, "another process uses the store in "+dir)
	first.Stop()
	start(t, natsembed.Options{Dir: dir}).Stop()
}

func TestStartRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))

	for _, tt := range []struct {
		name string
		o    natsembed.Options
		want string
	}{
		{"a file for a folder", natsembed.Options{Dir: file}, "make the store folder"},
		{"a port that is none", natsembed.Options{Dir: t.TempDir(), Port: 65536}, "port 65536"},
		{"a port that is taken", natsembed.Options{Dir: t.TempDir(), Port: taken.Addr().(*net.TCPAddr).Port}, "address already in use"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			tt.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			_, err := natsembed.Start(t.Context(), tt.o)
			require.ErrorContains(t, err, tt.want)
			listening, ok := errors.AsType[*net.OpError](err)
			require.Equal(t, tt.name == "a port that is taken", ok)
			if ok {
				require.Equal(t, "listen", listening.Op)
			}
		})
	}
}

func TestConnect(t *testing.T) {
	nc, stop, err := natsembed.Connect(t.Context(), "")
	require.NoError(t, err)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.AccountInfo(t.Context())
	require.NoError(t, err)

	again, stopAgain, err := natsembed.Connect(t.Context(), nc.ConnectedUrl())
	require.NoError(t, err)
	require.NotEqual(t, nc, again)
	stopAgain()
	require.True(t, again.IsClosed())
	require.True(t, nc.IsConnected(), "the server belongs to the first connection")

	url := nc.ConnectedUrl()
	stop()
	stop()
	_, _, err = natsembed.Connect(t.Context(), url)
	require.ErrorContains(t, err, "connect to "+url)
}
