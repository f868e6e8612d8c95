package jsstore

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/natsembed"
)

// A server that acknowledges before it writes is refused by name. Here its files are
// looked for in a folder where an earlier write is all there is.
func TestServerThatAcknowledgesFirst(t *testing.T) {
	srv, err := natsembed.Start(t.Context(), natsembed.Options{Dir: t.TempDir(), Port: natsembed.NoPort})
	require.NoError(t, err)
	defer srv.Stop()
	nc, err := srv.Connect()
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	dir := t.TempDir()
	blocks := filepath.Join(dir, "jetstream", "$G", "streams", "broker_probe", "msgs")
	require.NoError(t, os.MkdirAll(blocks, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(blocks, "1.blk"), []byte("an earlier write"), 0o600))
	_, err = Open(t.Context(), js, Config{Name: "broker", SyncDir: dir})
	require.ErrorContains(t, err, "acknowledged a write that is not in its file")
	require.ErrorContains(t, err, "--sync each")
	_, err = js.Stream(t.Context(), "broker_probe")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)

	s, err := Open(t.Context(), js, Config{Name: "broker", SyncDir: srv.Dir()})
	require.NoError(t, err)
	s.Close()
	_, err = js.Stream(t.Context(), "broker_probe")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}
