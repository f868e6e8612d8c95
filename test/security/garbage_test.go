package security

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// garbageUsers may publish on one row of docs/listeners.md each, as far as possible for the objects called victim alone.
var garbageUsers = []string{
	"$KV.broker_registry.*.victim $KV.broker_registry.*.victim.>", "$KV.broker_registry.r.>",
	"broker.m.victim.> broker.s.victim.>", "broker.j.*.* broker.a.>", "broker.t", "broker.x.deleted", "broker.x.dispatch",
	"relay.from_sender.victim", "relay.to_receiver.victim.> relay.pending_from_receiver.victim.> relay.to_sender.victim.>", "relay.failed_messages.>",
	"relay.ended.>",
	"$KV.relay_messages.victim.>", "$KV.relay_receiver_config.*.victim", "$KV.relay_state.operation.> $KV.relay_state.window.victim",
}

// notices are messages that no stream keeps.
var notices = map[string]string{
	"broker.x.deleted": `{"Token":"victim","Seqs":[1,2]}`, "broker.x.dispatch": `{"Node":"x","Shard":1}`, "relay.ended.victim.1": `{}`,
	"relay.from_sender.victim": `{}`,
}

// mutants are versions of a text, in which a value of its JSON is another one, and parts of it.
func mutants(text string) (all []string) {
	all = []string{"", "null", "[]", `"x"`, "-1", strings.Repeat("[", 20_000), text[:len(text)/2], text + text, strings.Repeat("x", 100_000)}
	begin, end := strings.Index(text, "{"), strings.LastIndex(text, "}")
	if begin < 0 || end < begin {
		return all
	}
	var value any
	if json.Unmarshal([]byte(text[begin:end+1]), &value) != nil {
		return all
	}
	add := func() {
		changed, _ := json.Marshal(value)
		all = append(all, text[:begin]+string(changed)+text[end+1:])
	}
	var walk func(at any)
	walk = func(at any) {
		object, ok := at.(map[string]any)
		if !ok {
			return
		}
		for key, was := range object {
			for _, other := range []any{
				nil, -1, 0, 1 << 62, "", "*.>\x00\x1b", strings.Repeat("x", 10_000),
				[]any{nil},
				map[string]any{"": nil},
				"9999-12-31T23:59:59Z", "FAILED", "RUNNING",
				[]int{1 << 62},
			} {
				object[key] = other
				add()
			}
			delete(object, key)
			add()
			object[key] = was
			walk(was)
		}
	}
	walk(value)
	return all
}

// mine reports whether a user of [garbageUsers] may publish on a subject.
func mine(user, subject string) bool {
	return slices.ContainsFunc(strings.Fields(user), func(pattern string) bool {
		want, have := strings.Split(pattern, "."), strings.Split(subject, ".")
		for i, token := range want {
			if token == ">" {
				return len(have) > i
			}
			if i >= len(have) || token != "*" && token != have[i] {
				return false
			}
		}
		return len(want) == len(have)
	})
}

// garble publishes, as each user, mutants of what the streams have on its subjects and of the notices there.
func garble(t *testing.T, srv *servertest.Server, js jetstream.JetStream) {
	t.Helper()
	var seeds []*nats.Msg
	for subject, text := range notices {
		seeds = append(seeds, &nats.Msg{Subject: subject, Data: []byte(text), Header: nats.Header{"Relay-Message-Id": {"1"}, "Relay-Receiver": {"victim"}}})
	}
	streams := js.ListStreams(t.Context())
	for info := range streams.Info() {
		stream, err := js.Stream(t.Context(), info.Config.Name)
		require.NoError(t, err)
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			raw, err := stream.GetMsg(t.Context(), seq)
			if err != nil && info.Config.MaxMsgs == 1 { // a tick, which another has replaced
				raw, err = stream.GetLastMsgForSubject(t.Context(), info.Config.Subjects[0])
			}
			if err == nil {
				raw.Header.Del(jetstream.ExpectedLastSubjSeqHeader)
				raw.Header.Del(jetstream.ExpectedLastSubjSeqSubjHeader)
				raw.Header.Del(jetstream.MsgIDHeader)
				seeds = append(seeds, &nats.Msg{Subject: raw.Subject, Header: raw.Header, Data: raw.Data})
			}
		}
	}
	require.NoError(t, streams.Err())
	for _, user := range garbageUsers {
		attacker, probes := srv.Attacker(t, user), 0
		for _, seed := range seeds {
			if !mine(user, seed.Subject) {
				continue
			}
			publish := func(header nats.Header, body []byte) {
				subject := seed.Subject
				if strings.HasPrefix(subject, "relay.failed_messages.") { // which keeps one message for each subject
					subject += fmt.Sprint(probes)
				}
				require.NoError(t, attacker.PublishMsg(&nats.Msg{Subject: subject, Header: header, Data: body}))
				probes++
			}
			for _, body := range mutants(string(seed.Data)) {
				publish(seed.Header, []byte(body))
			}
			for name, values := range seed.Header {
				for _, value := range mutants(values[0]) {
					header := nats.Header{}
					for other, values := range seed.Header {
						header[other] = values
					}
					header[name] = []string{value[:min(len(value), 20_000)]}
					publish(header, seed.Data)
				}
			}
			require.NoError(t, attacker.Flush())
		}
		require.NoError(t, attacker.LastError(), user)
		t.Logf("%d probes of %s", probes, user)
		require.NotZero(t, probes, "the streams have nothing on %s: no value there is attacked", user)
	}
}

// Users of the systems' own account, each with one permission to publish, write garbage and values of each type and size in the place of
// each field that is believed. Neither system ends, nor does one that starts with these values. The objects of others work as before, and
// so do operations over all.
func TestGarbageInTheAccount(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t, servertest.WithAttackers(garbageUsers...))
	js := srv.JetStream(t, srv.Connect(t))
	var delivered atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/bank"):
			delivered.Add(1)
		case strings.HasPrefix(r.URL.Path, "/pending"):
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer receiver.Close()
	config := filepath.Join(t.TempDir(), "broker.cfg")
	require.NoError(t, os.WriteFile(config, []byte("[broker]\nmax-retry=0\n"), 0o600))
	systems := func() (b, r *system) {
		return start(t, "broker", append(manyLogins, "--nats", srv.URL(), "--config", config)...),
			start(t, "relay", append(manyLogins, "--nats", srv.URL())...)
	}
	sent := 0
	send := func(b, r *system, name string) {
		t.Helper()
		sent++
		tokens := http.Header{"X-Broker-Channel-Token": {"ct"}, "X-Broker-Producer-Id": {"bank"}, "X-Broker-Producer-Token": {"pt"}}
		a := b.ask(t, http.MethodPost, "/channel/"+name+"/broadcast", tokens, "x")
		require.Equal(t, http.StatusCreated, a.status, string(a.body))
		require.Eventually(t, func() bool { // it refuses messages while it is busy
			a = r.ask(t, http.MethodPost, "/v1/messages", bearer(adminToken),
				fmt.Sprintf(`{"source_id":%q,"message_id":"m%d","receiver":%[1]q,"payload":1}`, name, sent))
			return a.status < 300
		}, time.Minute, 100*time.Millisecond, "%s", a.body)
	}
	const asJSON = "application/json"
	eventually := func(what string, done func() bool) {
		t.Helper()
		require.Eventually(t, done, time.Minute, 10*time.Millisecond, what)
	}
	operate := func(b, r *system) { // over all objects, as far as there are any
		for _, verb := range []string{"redrive", "skip", "purge"} {
			r.must(t, http.MethodPost, "/v1/failed:"+verb, asJSON, `{"filter":{}}`)
		}
		for _, verb := range []string{"requeue", "purge"} {
			a := b.ask(t, http.MethodPost, "/dead-jobs/"+verb, bearer(adminToken), `{}`)
			require.True(t, a.status < 300 || a.status == http.StatusConflict, "%d %s", a.status, a.body)
		}
	}

	b, r := systems()
	b.must(t, http.MethodPut, "/producer/bank", formType, "token=pt")
	b.must(t, http.MethodPut, "/producer/victim", formType, "token=pt")
	for _, name := range []string{"bank", "victim", "pending"} {
		b.must(t, http.MethodPut, "/channel/"+name, formType, "token=ct")
		b.must(t, http.MethodPut, "/channel/"+name+"/consumer/push", formType,
			url.Values{"token": {"kt"}, "callbackUrl": {receiver.URL + "/" + name}}.Encode())
		r.must(t, http.MethodPut, "/v1/receivers/"+name, asJSON, fmt.Sprintf(`{"post_endpoint":%q,"rate_limit":1000,"order":"source"}`,
			receiver.URL+"/"+name))
		r.must(t, http.MethodPut, "/v1/senders/"+name, asJSON, fmt.Sprintf(`{"callback_endpoint":%q,"token":"t","sources":[%q]}`, receiver.URL+"/"+name,
			name))
	}
	b.must(t, http.MethodPut, "/channel/victim/access/victim", formType, "role=read")
	r.must(t, http.MethodPut, "/v1/receivers/victim", asJSON, fmt.Sprintf(`{"post_endpoint":%q,"rate_limit":1000,"order":"source"}`,
		receiver.URL+"/victim"))
	send(b, r, "victim")
	send(b, r, "bank")
	eventually("the messages have ended", func() bool {
		return strings.Contains(string(r.ask(t, http.MethodGet, "/v1/failed", bearer(adminToken), "").body),
			"PERMANENT") && strings.Contains(string(b.ask(t, http.MethodGet, "/dead-jobs", bearer(adminToken), "").body), "victim")
	})
	b.must(t, http.MethodPost, "/channel/victim/consumer/push/replay", asJSON, "{}")
	b.must(t, http.MethodPost, "/dead-jobs/requeue", asJSON, "{}")
	r.must(t, http.MethodPost, "/v1/failed:redrive", asJSON, `{"filter":{"receiver":"none"}}`)
	eventually("the operations have ended, and their records do not change while they are read", func() bool {
		all := string(b.ask(t, http.MethodGet, "/replays", bearer(adminToken), "").body) +
			string(b.ask(t, http.MethodGet, "/dead-jobs/operations", bearer(adminToken), "").body) +
			string(r.ask(t, http.MethodGet, "/v1/operations", bearer(adminToken), "").body)
		return !strings.Contains(strings.ToLower(all), "running")
	})

	garble(t, srv, js)
	for range 2 {
		before := delivered.Load()
		send(b, r, "bank")
		eventually("the messages of another arrive", func() bool { return delivered.Load() >= before+2 })
		operate(b, r)
		for _, s := range []*system{b, r} {
			for _, o := range s.operations(t) {
				values := map[string]string{
					"channel": "victim", "consumer": "push", "producer": "victim", "access": "victim", "name": "victim",
					"source": "victim", "id": "m1",
				}
				for _, name := range o.parameters() {
					if values[name] == "" {
						values[name] = "none"
					}
				}
				if o.method == http.MethodGet && !strings.HasPrefix(o.path, "/backup") {
					a := s.ask(t, o.method, o.at(values), bearer(adminToken), "")
					require.NotEqual(t, http.StatusInternalServerError, a.status, "%s: %s", o, a.body)
				}
			}
			s.alive(t)
		}
		b, r = systems() // which read all that is stored
	}
}
