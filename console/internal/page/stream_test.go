package page

import (
	"context"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/view"
)

// streams is an account with some streams.
type streams struct {
	*storedStream
	all []*jetstream.StreamInfo
}

func (s *streams) Streams(context.Context) ([]*jetstream.StreamInfo, error) { return s.all, nil }

// Buckets and object stores are shown as what they are. The streams of a system are hidden, with their consumers, unless these are in trouble.
func TestInternalStreamsAreHidden(t *testing.T) {
	of := func(name string, subjects ...string) *jetstream.StreamInfo {
		return &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: name, Subjects: subjects}}
	}
	source := &streams{newStream("ORDERS"), []*jetstream.StreamInfo{
		of("ORDERS", "orders.>"), of("KV_users", "$KV.users.>"), of("OBJ_files", "$O.files.C.>", "$O.files.M.>"), of("KV_partition-billing", "$KV.partition-billing.>"),
		of("relay_to_receiver", "relay.to_receiver.>"), of("$MQTT_sess"),
	}}
	consumer := func(stream, name string, pending uint64) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{Stream: stream, Name: name, NumPending: pending}
	}
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, source, consumer("ORDERS", "billing", 0), consumer("relay_to_receiver", "shop", 0), consumer("relay_to_receiver", "stuck", 1))
		time.Sleep(time.Minute)
		synctest.Wait()
		rows := func(page *view.Page, err error) (found [][2]string) {
			require.NoError(t, err)
			for _, row := range page.Parts[0].List.Rows {
				found = append(found, [2]string{row.Cells[0].Text, row.Cells[1].Text})
			}
			return found
		}
		request := func(q url.Values) Request { return Request{Query: q, Now: time.Now()} }
		require.Equal(t, [][2]string{{"users", "key-value bucket"}, {"files", "object store"}, {"ORDERS", "stream"}},
			rows(r.pages.streams(t.Context(), request(url.Values{}))))
		require.Len(t, rows(r.pages.streams(t.Context(), request(url.Values{"all": {"1"}}))), 6)
		require.Equal(t, [][2]string{{"relay_to_receiver", "stuck"}, {"ORDERS", "billing"}}, rows(r.pages.consumers.list(t.Context(), request(url.Values{}))))
		require.Len(t, rows(r.pages.consumers.list(t.Context(), request(url.Values{"all": {"1"}}))), 3)
	})
}

// The page of a stream has the configuration with the server's names, the state, and the lag of its replicas.
func TestStream(t *testing.T) {
	source := newStream("ORDERS", "orders.>")
	source.info.Config.MaxAge, source.info.Config.MaxMsgsPerSubject = time.Hour, 5
	source.info.Cluster = &jetstream.ClusterInfo{Leader: "n1", Replicas: []*jetstream.PeerInfo{{Name: "n2", Current: true}, {Name: "n3", Lag: 7000}}}
	source.store(3, jetstream.RawStreamMsg{Subject: "orders.new"})
	source.store(1, jetstream.RawStreamMsg{Subject: "orders.paid"})
	r := newReader(t, source, &jetstream.ConsumerInfo{Stream: "ORDERS", Name: "billing", NumPending: 3})
	page, err := r.pages.stream(t.Context(), Request{Query: url.Values{"name": {"ORDERS"}}, Now: time.Now()})
	require.NoError(t, err)
	require.Equal(t, "Server n3 is 7,000 operations behind, and was last seen 0 µs ago.", page.Parts[0].Problem)
	text := map[string][][]string{}
	for _, part := range page.Parts {
		for _, fact := range part.Facts {
			text[part.ID] = append(text[part.ID], []string{fact.Name, fact.Value.Text})
		}
		if part.List == nil {
			continue
		}
		for _, row := range part.List.Rows {
			var cells []string
			for _, cell := range row.Cells {
				cells = append(cells, cell.Text)
			}
			text[part.ID] = append(text[part.ID], cells)
		}
	}
	require.Contains(t, text["stream"], []string{"Limits", "1 h, 5 of a subject"})
	require.Equal(t, [][]string{{"n2", "current", "0", "–"}, {"n3", "behind", "7,000", "–"}}, text["replicas"])
	require.Equal(t, []string{"billing", "no worker", "3"}, text["consumers"][0][:3])
	require.Equal(t, [][]string{{"orders.new", "3"}, {"orders.paid", "1"}}, text["subjects"])
	require.Contains(t, page.Parts[len(page.Parts)-1].Texts[0].Text, `"max_msgs_per_subject": 5`)
	require.Contains(t, page.Parts[len(page.Parts)-1].Texts[0].Text, `"max_age": 3600000000000`)
	_, err = r.pages.stream(t.Context(), Request{Query: url.Values{"name": {"NONE"}}, Now: time.Now()})
	require.ErrorContains(t, err, `There is no stream "NONE".`)
}
