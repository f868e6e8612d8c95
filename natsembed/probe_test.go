package natsembed

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// The server writes a message to its file before it acknowledges it. Otherwise the broker's own syncs would be worthless.
func TestServerWritesBeforeItAcknowledges(t *testing.T) {
	srv, err := Start(t.Context(), Options{Dir: t.TempDir(), Port: NoPort})
	require.NoError(t, err)
	defer srv.Stop()
	nc, err := srv.Connect()
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "probe", Subjects: []string{"probe"}, Storage: jetstream.FileStorage})
	require.NoError(t, err)
	for i := range 200 {
		text := fmt.Sprintf("write %d of the probe", i)
		_, err := js.Publish(t.Context(), "probe", []byte(text))
		require.NoError(t, err)
		blocks, err := filepath.Glob(filepath.Join(srv.Dir(), "jetstream", "$G", "streams", "probe", "msgs", "*.blk"))
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(blocks, func(block string) bool {
			stored, err := os.ReadFile(block)
			require.NoError(t, err)
			return strings.Contains(string(stored), text)
		}), text)
	}
}
