package security

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/partition"
	"github.com/jetpull/jetpull/test/servertest"
)

// call runs a command to its end, and returns all that it has printed.
func call(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program, err := command()
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	require.NotContains(t, string(out), "goroutine ", args)
	return string(out), err
}

// sets is a stream with a set of partitions, and one of another application whose consumer has the name that a set's would have.
func sets(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	transform := partition.Transform(4, "orders.*")
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}, SubjectTransform: &transform})
	require.NoError(t, err)
	_, err = partition.Open(t.Context(), js, "ORDERS", partition.Config{Name: "billing", Partitions: 4, Subject: "orders.{partition}.*"})
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "PAYMENTS", Subjects: []string{"payments.*"}})
	require.NoError(t, err)
	_, err = js.CreateConsumer(t.Context(), "PAYMENTS", jetstream.ConsumerConfig{Durable: "forged-0", FilterSubject: "payments.0"})
	require.NoError(t, err)
}

// A client that may only create, or change, the bucket of one set writes its metadata. Whoever shows, resizes or deletes that set does
// nothing to another set or to an application's consumers, and neither commands nor the console end.
func TestForgedMetadataOfASet(t *testing.T) {
	const create, update = "$JS.API.STREAM.CREATE.KV_partition-forged", "$JS.API.STREAM.UPDATE.KV_partition-billing"
	srv := servertest.RunServer(t, servertest.WithAttackers(create, update))
	js := srv.JetStream(t, srv.Connect(t))
	sets(t, js)
	c, admin, _ := newConsole(t, "--nats", srv.URL())
	orders, err := js.Stream(t.Context(), "ORDERS")
	require.NoError(t, err)
	created, err := json.Marshal(orders.CachedInfo().Created)
	require.NoError(t, err)
	record := func(stream, name, partitions, subject, rest string) string {
		return `{"Stream":"` + stream + `","Created":` + string(created) + `,"Name":"` + name + `","Partitions":` + partitions + `,"Subject":"` + subject + `","MaxAckPending":256,"AckWait":30000000000` + rest + `}`
	}
	const ttl = `,"TTL":10000000000`
	made, err := js.Stream(t.Context(), "KV_partition-billing")
	require.NoError(t, err)
	honest := made.CachedInfo().Config
	member := `{"owners":[{"m":"a.1"},{"m":"a.1"},{"m":"a.1"},{"m":"a.1"}],"members":{"a.1":false}}`
	kv, err := js.KeyValue(t.Context(), "partition-billing")
	require.NoError(t, err)
	for user, records := range map[string][]string{
		create: {
			record("ORDERS", "billing", "4", "orders.{partition}.*", ttl), // whose consumers are those of another set
			record("PAYMENTS", "forged", "1", "payments.{partition}", ttl),
			record("PAYMENTS", "forged", "1", "payments.{partition}", ""),
			record("ORDERS", "forged", "-1", "orders.{partition}.*", ttl),
			record("ORDERS", "forged", "1099511627776", "orders.{partition}.*", ttl),
			record("ORDERS.>", "forged", "1", "{partition}", ttl), record("", "", "0", "", ttl),
			"null", "{", "[]", `{"Stream":1}`, `"\u001b[2J"`, strings.Repeat("<script>", 10_000), "",
		},
		update: {
			record("ORDERS", "billing", "4", "orders.{partition}.*", `,"TTL":-1`), // all members would be silent for too long
			record("PAYMENTS", "billing", "4", "orders.{partition}.*", ttl),
		},
	} {
		attacker, err := jetstream.New(srv.Attacker(t, user))
		require.NoError(t, err)
		for _, metadata := range records {
			config, name := honest, "billing"
			config.Metadata = map[string]string{"partition": metadata}
			if user == create {
				name, config.Name, config.Subjects = "forged", "KV_partition-forged", []string{"$KV.partition-forged.>"}
				_, err = attacker.CreateStream(t.Context(), config)
			} else {
				_, err = kv.PutString(t.Context(), "state", member)
				require.NoError(t, err)
				_, err = kv.PutString(t.Context(), "member.a.1", "1")
				require.NoError(t, err)
				_, err = attacker.UpdateStream(t.Context(), config)
			}
			require.NoError(t, err)
			for _, page := range []string{"/sets", "/set?name=" + name} {
				text := string(c.ask(t, http.MethodGet, page, admin, "").body)
				require.NotContains(t, text, "<script><script>", page)
			}
			for _, args := range [][]string{{"ls", name}, {"resize", name, "2"}, {"rm", name}} {
				out, err := call(t, append([]string{"partition", "--nats", srv.URL()}, args...)...)
				require.NotContains(t, out, "\x1b", args)
				if args[0] != "rm" || user == update {
					require.Error(t, err, "%v of %.200s: %s", args, metadata, out)
				}
			}
			for stream, consumers := range map[string]int{"ORDERS": 4, "PAYMENTS": 1} {
				s, err := js.Stream(t.Context(), stream)
				require.NoError(t, err)
				require.Equal(t, consumers, s.CachedInfo().State.Consumers, "%s after %.200s", stream, metadata)
				require.Equal(t, orders.CachedInfo().Config.SubjectTransform != nil && stream == "ORDERS", s.CachedInfo().Config.SubjectTransform != nil)
			}
			if err := js.DeleteStream(t.Context(), "KV_partition-forged"); user == create && err != nil {
				require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
			}
		}
	}
	_, err = js.UpdateStream(t.Context(), honest)
	require.NoError(t, err)
	require.Contains(t, string(c.ask(t, http.MethodGet, "/sets", admin, "").body), "billing")
}

// A client that may create consumers of one stream fills their descriptions and metadata. The console shows them as text, and keeps little of them.
// The command shows no control characters of them.
func TestForgedMetadataOfAConsumer(t *testing.T) {
	const user = "$JS.API.CONSUMER.CREATE.PAYMENTS.>"
	srv := servertest.RunServer(t, servertest.WithAttackers(user))
	sets(t, srv.JetStream(t, srv.Connect(t)))
	attacker, err := jetstream.New(srv.Attacker(t, user))
	require.NoError(t, err)
	forged := `<script>alert(1)</script>` + "\x1b[2J\u202e\u009b"
	for name, metadata := range map[string]map[string]string{
		"small": {forged: forged, "partition": `{"Name":"billing"}`}, "large": {"k": strings.Repeat("large ", 20_000)},
	} {
		_, err = attacker.CreateConsumer(t.Context(), "PAYMENTS", jetstream.ConsumerConfig{Durable: name, Description: forged, Metadata: metadata})
		require.NoError(t, err)
	}
	c, admin, _ := newConsole(t, "--nats", srv.URL())
	pages := map[string]string{}
	for _, name := range []string{"small", "large"} {
		page := "/consumer?" + url.Values{"stream": {"PAYMENTS"}, "name": {name}}.Encode()
		require.Eventually(t, func() bool {
			a := c.ask(t, http.MethodGet, page, admin, "")
			pages[name] = string(a.body)
			return a.status == http.StatusOK
		}, time.Minute, 10*time.Millisecond)
		out, err := call(t, "info", "PAYMENTS", name, "--nats", srv.URL(), "--json")
		require.NoError(t, err, out)
		require.NotContains(t, pages[name], "<script>alert")
		for _, bad := range []string{"\x1b", "\u009b"} {
			require.NotContains(t, out, bad)
		}
	}
	require.Contains(t, pages["small"], "Metadata partition: ")
	require.Less(t, len(pages["large"]), 60_000)
}

// A name that is longer than the server's limit for a line would end the connection, for good. A reader of the console chooses names; a
// client that may publish dead letters, or items with a reply, chooses subjects.
func TestLongNamesKeepTheConnection(t *testing.T) {
	srv := servertest.RunServer(t)
	js := srv.JetStream(t, srv.Connect(t))
	applications(t, js)
	c, admin, reader := newConsole(t, "--nats", srv.URL())
	long := strings.Repeat("x", 5000)
	for _, page := range []string{
		"/messages?stream=", "/message?seq=1&stream=", "/deadletters?stream=", "/message?seq=1&stream=", "/consumer?name=x&stream=",
		"/consumer?stream=ORDERS&name=",
		"/set?name=", "/messages?stream=ORDERS&subject=", "/deadletters?stream=DEAD&subject=", "/sets?q=",
	} {
		a := c.ask(t, http.MethodGet, page+long, reader, "")
		require.NotEqual(t, http.StatusInternalServerError, a.status, page)
		ok := c.ask(t, http.MethodGet, "/messages?stream=ORDERS", reader, "")
		require.Contains(t, string(ok.body), "orders.new", "after %s", page)
	}
	_, err := js.PublishMsg(t.Context(), &nats.Msg{
		Subject: "dead.orders",
		Header:  nats.Header{jetpull.HeaderDeadSubject: {"orders." + long}, jetpull.HeaderDeadStream: {"ORDERS"}},
	})
	require.NoError(t, err)
	post := admin.Clone()
	post.Set("Content-Type", formType)
	a := c.ask(t, http.MethodPost, "/message?stream=DEAD&seq=2", post, "do=requeue")
	require.Equal(t, http.StatusBadGateway, a.status, string(a.body))
	require.Contains(t, string(c.ask(t, http.MethodGet, "/messages?stream=ORDERS", reader, "").body), "orders.new")
	out, err := call(t, "dlq", "requeue", "DEAD", "--all", "--nats", srv.URL())
	require.NotContains(t, out, "connection closed", err)
}
