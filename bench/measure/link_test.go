package measure

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/natsembed"
)

func TestATurnsConnectionIsLikeTheLinks(t *testing.T) {
	srv, err := natsembed.Start(t.Context(), natsembed.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(srv.Stop)
	conn, err := nats.Connect(srv.URL(), nats.CustomInboxPrefix("_MINE"), nats.UserInfo("ann", "pw"))
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.NewWithDomain(conn, "hub")
	require.NoError(t, err)

	again, err := Link{js}.again("turn", nats.NoReconnect())
	require.NoError(t, err)
	defer again.Conn().Close()
	assert.NotSame(t, conn, again.Conn())
	assert.Equal(t, "hub", again.Options().Domain)
	o := again.Conn().Opts
	assert.Equal(t, []any{"turn", "ann", "_MINE", false}, []any{o.Name, o.User, o.InboxPrefix, o.AllowReconnect})
	assert.True(t, conn.Opts.AllowReconnect, "the link stays as it is")
}
