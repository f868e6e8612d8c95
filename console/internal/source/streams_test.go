package source

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// Each stream is listed once, however many pages the server needs. Those that it does not hear of have no leader.
func TestStreamsWithoutALeader(t *testing.T) {
	srv := servertest.RunServer(t)
	nc := srv.Connect(t)
	const all, limit = 11, 4
	_, err := nc.Subscribe("fake.STREAM.LIST", func(m *nats.Msg) {
		var request struct{ Offset int }
		if json.Unmarshal(m.Data, &request) != nil {
			return // the test fails without an answer
		}
		answer := map[string]any{"total": all, "limit": limit}
		var streams []jetstream.StreamInfo
		var missing []string
		for i := request.Offset; i < min(all, request.Offset+limit); i++ {
			one := jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: fmt.Sprintf("S%02d", i)}, Cluster: &jetstream.ClusterInfo{Leader: "n1"}}
			switch i {
			case 1: // its leader does not answer
				missing = append(missing, one.Config.Name)
				continue
			case 6: // all of its servers are offline
				one.Cluster.Leader, missing = "", append(missing, one.Config.Name)
			}
			streams = append(streams, one)
		}
		answer["streams"], answer["missing"] = streams, missing
		data, _ := json.Marshal(answer) // it can be
		_ = m.Respond(data)
	})
	require.NoError(t, err)
	js, err := jetstream.NewWithAPIPrefix(nc, "fake")
	require.NoError(t, err)
	found, err := JetStream{js}.Streams(t.Context())
	require.NoError(t, err)
	leaders := map[string]string{}
	for _, info := range found {
		leaders[info.Config.Name] = info.Cluster.Leader
	}
	require.Len(t, found, all)
	require.Len(t, leaders, all)
	for name, leader := range leaders {
		require.Equal(t, name == "S01" || name == "S06", leader == "", name)
	}
}

// A user that may not ask for the account gets the server alone. Without JetStream there are no streams.
func TestAccount(t *testing.T) {
	srv := servertest.RunServer(t, servertest.WithConfig(`server_name: n1
accounts {SHOP {jetstream: {max_streams: 5}, users: [
  {user: ada, password: a}
  {user: lin, password: a, permissions: {publish: {deny: "$JS.API.INFO"}}}
]}, BARE {users: [{user: eve, password: a}]}}`))
	of := func(user string) JetStream {
		return JetStream{srv.JetStream(t, srv.Connect(t, nats.UserInfo(user, "a"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})))}
	}
	info, err := of("ada").Account(t.Context())
	require.NoError(t, err)
	require.NoError(t, info.Err)
	require.Equal(t, "n1", info.Server)
	require.NotEmpty(t, info.Version)
	require.Equal(t, 5, info.Info.Limits.MaxStreams)
	info, err = of("lin").Account(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, info.Err, "may not publish to $JS.API.INFO")
	require.Equal(t, "n1", info.Server)
	_, err = of("eve").Streams(t.Context())
	require.ErrorContains(t, err, "not enabled for account")
	gone := of("ada")
	gone.Conn().Close()
	_, err = gone.Account(t.Context())
	require.ErrorContains(t, err, "no connection")
}
