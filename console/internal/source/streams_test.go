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

// A replica that lags behind does not end a list: the leader is asked for what follows.
func TestMessagesOfAReplicaThatLags(t *testing.T) {
	srv := servertest.RunServer(t)
	nc := srv.Connect(t)
	const replica, leader = 3, 5 // the last messages that they have
	type request struct {
		Seq   uint64
		Batch int
	}
	serve := func(subject string, answer func(to string, r request)) {
		_, err := nc.Subscribe(subject, func(m *nats.Msg) {
			var r request
			if json.Unmarshal(m.Data, &r) == nil { // the test fails without an answer
				answer(m.Reply, r)
			}
		})
		require.NoError(t, err)
	}
	serve("fake.DIRECT.GET.S", func(to string, r request) {
		send := func(h nats.Header) { _ = nc.PublishMsg(&nats.Msg{Subject: to, Header: h}) }
		for i := range r.Batch {
			seq := r.Seq + uint64(i)
			if seq > replica {
				break
			}
			send(nats.Header{
				"Nats-Subject": {"a"}, "Nats-Sequence": {fmt.Sprint(seq)}, "Nats-Time-Stamp": {"2026-01-01T00:00:00Z"},
				"Nats-Num-Pending": {fmt.Sprint(replica - seq)},
			})
		}
		send(nats.Header{"Status": {"204"}})
	})
	serve("fake.STREAM.MSG.GET.S", func(to string, r request) {
		answer := fmt.Sprintf(`{"message": {"subject": "a", "seq": %d}}`, r.Seq)
		if r.Seq > leader {
			answer = `{"error": {"code": 404, "err_code": 10037}}`
		}
		_ = nc.Publish(to, []byte(answer))
	})
	js, err := jetstream.NewWithAPIPrefix(nc, "fake")
	require.NoError(t, err)
	info := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "S", AllowDirect: true}}
	for _, test := range []struct {
		from uint64
		n    int
		want []uint64
	}{{1, 10, []uint64{1, 2, 3, 4, 5}}, {1, 2, []uint64{1, 2}}, {4, 1, []uint64{4}}, {6, 10, nil}} {
		found, err := JetStream{js}.Messages(t.Context(), info, test.from, ">", test.n)
		require.NoError(t, err)
		var all []uint64
		for _, m := range found {
			all = append(all, m.Sequence)
		}
		require.Equal(t, test.want, all, "from %d", test.from)
	}
}
