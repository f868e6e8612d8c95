package security

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/deadletters"
	"github.com/jetpull/jetpull/partition"
	"github.com/jetpull/jetpull/test/servertest"
)

// newConsole is a console with a token of an administrator and one that is read-only. It returns the headers of a session of each.
func newConsole(t *testing.T, args ...string) (c *system, admin, reader http.Header) {
	t.Helper()
	c = run(t, "console", append([]string{"--console-token", adminToken, "--console-read-token", "reader-token"}, args...)...)
	c.url = strings.TrimSuffix(c.url, "/")
	return c, c.signIn(t, adminToken), c.signIn(t, "reader-token")
}

func (s *system) signIn(t *testing.T, token string) http.Header {
	t.Helper()
	a := s.ask(t, http.MethodPost, "/login", http.Header{"Content-Type": {formType}}, url.Values{"token": {token}}.Encode())
	require.Equal(t, http.StatusSeeOther, a.status, string(a.body))
	cookie, _, _ := strings.Cut(a.header.Get("Set-Cookie"), ";")
	return http.Header{"Cookie": {cookie}}
}

// event is the begin of a stream of events, which has all of a page that changes.
func (s *system) event(t *testing.T, path string, header http.Header) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	require.NoError(t, err)
	req.Header = header
	resp, err := s.client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var all []byte
	for b := make([]byte, 4096); !strings.Contains(string(all), "event: asked"); {
		n, err := resp.Body.Read(b)
		all = append(all, b[:n]...)
		require.NoError(t, err, "%s: %s", path, all)
	}
	return string(all)
}

// applications are streams of an application, with a payload and a header that are not for every reader.
func applications(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for name, subject := range map[string]string{"ORDERS": "orders.>", "DEAD": "dead.>"} {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}, AllowDirect: name == "DEAD"})
		require.NoError(t, err)
	}
	header := nats.Header{
		"Authorization": {"Bearer private header"}, jetpull.HeaderDeadSubject: {"orders.new"}, jetpull.HeaderDeadStream: {"ORDERS"},
		jetpull.HeaderDeadReason: {"no such customer"},
	}
	for _, subject := range []string{"orders.new", "dead.orders"} {
		_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: header, Data: []byte("private payload")})
		require.NoError(t, err)
	}
}

// secrets are in the streams and buckets of the systems.
var secrets = []string{"channel-secret", "producer-secret", "consumer-secret", "token-of-", "whsec_", "secret payload"}

// The console shows payloads of the systems' own streams and buckets to nobody, and those of applications to a reader only if it is configured so.
func TestConsolePayloads(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	js, err := jetstream.New(srv.Connect(t))
	require.NoError(t, err)
	// The names of the streams are configurable.
	b := newBroker(t, "--nats", srv.URL(), "--nats-name", "hooks")
	r := newRelay(t, "--nats", srv.URL(), "--name", "out-1")
	own := map[string]bool{}
	for name := range js.StreamNames(t.Context()).Name() {
		own[name] = true
	}
	require.Len(t, own, 13, "those of broker and relay: %v", own)
	applications(t, js)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "BILLS", Subjects: []string{"bills.*.>"}})
	require.NoError(t, err)
	_, err = partition.Open(t.Context(), js, "BILLS", partition.Config{Name: "billing", Partitions: 1, Subject: "bills.{partition}.>"})
	require.NoError(t, err)
	own["KV_partition-billing"] = true
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "COPY", Mirror: &jetstream.StreamSource{Name: "KV_hooks_registry"}})
	require.NoError(t, err)
	own["COPY"] = true

	sources := []string{"--nats", srv.URL(), "--broker", b.url, "--broker-token", adminToken, "--relay", r.url, "--relay-token", adminToken}
	c, admin, reader := newConsole(t, sources...)
	open, _, openReader := newConsole(t, append(sources, "--console-read-payloads")...)
	users := []struct {
		name     string
		at       *system
		session  http.Header
		payloads bool
	}{{"admin", c, admin, true}, {"reader", c, reader, false}, {"reader with payloads", open, openReader, true}}
	raw := ""
	for stream := range own {
		s, err := js.Stream(t.Context(), stream)
		require.NoError(t, err)
		for seq := range s.CachedInfo().State.LastSeq {
			if m, err := s.GetMsg(t.Context(), seq+1); err == nil {
				raw += string(m.Data)
			}
		}
	}
	for _, one := range []string{"channel-secret", "consumer-secret", "whsec_", "secret payload"} {
		require.Contains(t, raw, one, "the streams have what the console does not show")
	}
	for _, u := range users {
		probes := 0
		see := func(page string) string {
			probes++
			return string(u.at.ask(t, http.MethodGet, page, u.session, "").body)
		}
		for stream := range own {
			s, err := js.Stream(t.Context(), stream)
			require.NoError(t, err)
			for seq := range s.CachedInfo().State.LastSeq {
				query := fmt.Sprintf("?stream=%s&seq=%d", stream, seq+1)
				for _, page := range []string{
					"/message" + query, "/message" + query + "&as=hex", "/message" + query + "&download=1", "/messages" + query,
					"/message" + query, "/deadletter" + query + "&download=1", "/message" + query + "&do=copy",
				} {
					text := see(page)
					for _, one := range append(secrets, "00000000  ", "Publish a copy") {
						require.NotContains(t, text, one, "%s: %s", u.name, page)
					}
				}
			}
			if stream != "COPY" && s.CachedInfo().State.Msgs > 0 {
				text := u.at.event(t, "/messages?stream="+stream+"&live=1", u.session)
				for _, one := range secrets {
					require.NotContains(t, text, one, "%s: %s", u.name, stream)
				}
			}
		}
		for _, page := range []string{
			"/message?stream=ORDERS&seq=1", "/message?stream=ORDERS&seq=1&download=1", "/messages?stream=ORDERS", "/messages?stream=DEAD&seq=1",
			"/message?stream=DEAD&seq=1",
			"/message?stream=DEAD&seq=1&download=1",
		} {
			text := see(page)
			require.Equal(t, u.payloads, strings.Contains(text, "private payload"), "%s: %s: %s", u.name, page, text)
			hasHeaders := strings.Contains(page, "message?stream") || strings.Contains(page, "deadletter?")
			require.Equal(t, u.payloads && hasHeaders && !strings.Contains(page, "download"), strings.Contains(text, "private header"), "%s: %s: %s", u.name,
				page, text)
		}
		require.Equal(t, u.payloads, strings.Contains(u.at.event(t, "/messages?stream=ORDERS&live=1", u.session), "private payload"), u.name)
		require.Contains(t, see("/message?stream=DEAD&seq=1"), "no such customer", "the reason is not a payload")
		for _, page := range []string{"/brokermessage?channel=orders&id=m-1", "/brokermessage?channel=orders&id=m-1&download=1"} {
			require.Equal(t, u.payloads, strings.Contains(see(page), "secret payload"), "%s: %s", u.name, page)
		}
		t.Logf("%s: %d probes", u.name, probes)
	}
}

// A client that may publish to the subject of dead letters, and nothing else, gets nothing done by an administrator who requeues them: no request to
// the server, no message to a reply or to a stream that is not its origin. The administrator sees the subjects first.
func TestForgedDeadLettersInTheConsole(t *testing.T) {
	srv := servertest.RunServer(t)
	js, err := jetstream.New(srv.Connect(t))
	require.NoError(t, err)
	applications(t, js)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "X", Subjects: []string{"x.>"}})
	require.NoError(t, err)
	victim := srv.Connect(t)
	heard, err := victim.SubscribeSync("_INBOX.victim.>")
	require.NoError(t, err)
	require.NoError(t, victim.Flush())
	forged := [][2]string{
		{"$JS.API.STREAM.DELETE.X", "ORDERS"},
		{"$JS.API.STREAM.PURGE.ORDERS", "X"},
		{"_INBOX.victim.1", "ORDERS"},
		{"orders.*", "ORDERS"},
		{"x.new", "ORDERS"},
		{"orders.new", "X"},
		{"x.new", "NONE"},
	}
	for _, to := range forged {
		_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "dead.orders", Header: nats.Header{
			jetpull.HeaderDeadSubject: {to[0]}, jetpull.HeaderDeadStream: {to[1]}, jetpull.HeaderDeadReason: {"forged"}, "Nats-Expected-Stream": {"DEAD"},
			"nats-rollup": {"all"},
		}})
		require.NoError(t, err)
	}
	c, admin, _ := newConsole(t, "--nats", srv.URL())
	post := func(page string, form url.Values) answer {
		header := admin.Clone()
		header.Set("Content-Type", formType)
		return c.ask(t, http.MethodPost, page, header, form.Encode())
	}
	untouched := func(orders uint64) {
		t.Helper()
		for stream, want := range map[string]uint64{"X": 0, "ORDERS": orders, "DEAD": uint64(len(forged)) + 2 - orders} {
			s, err := js.Stream(t.Context(), stream)
			require.NoError(t, err, stream)
			require.Equal(t, want, s.CachedInfo().State.Msgs, stream)
		}
		n, _, err := heard.Pending()
		require.NoError(t, err)
		require.Zero(t, n)
	}
	for seq, to := range forged {
		page := fmt.Sprintf("/message?stream=DEAD&seq=%d", seq+2)
		require.Contains(t, string(c.ask(t, http.MethodGet, page, admin, "").body), strings.ReplaceAll(to[0], "+", "&#43;"))
		for _, subject := range []string{"", to[0]} {
			require.Equal(t, http.StatusBadGateway, post(page, url.Values{"do": {"requeue"}, "subject": {subject}}).status, "%v", to)
		}
	}
	for _, subject := range []string{"$JS.API.STREAM.DELETE.X", "_INBOX.victim.1", "orders.>"} {
		require.Equal(t, http.StatusBadGateway, post("/message?stream=DEAD&seq=1", url.Values{"do": {"requeue"}, "subject": {subject}}).status, subject)
		require.Equal(t, http.StatusBadRequest, post("/message?stream=ORDERS&seq=1", url.Values{"do": {"copy"}, "subject": {subject}}).status, subject)
	}
	untouched(1)
	question := string(c.ask(t, http.MethodGet, "/deadletters?stream=DEAD&do=requeue-all", admin, "").body)
	require.Contains(t, question, "That is 8 dead letters at this moment.")
	require.Contains(t, question, "Published to: orders.new (1); refused: 7 (")
	begun := post("/deadletters?stream=DEAD", url.Values{"do": {"requeue-all"}})
	require.Equal(t, http.StatusSeeOther, begun.status, string(begun.body))
	require.Eventually(t, func() bool {
		text := string(c.ask(t, http.MethodGet, "/"+begun.header.Get("Location"), admin, "").body)
		return strings.Contains(text, "Ended: 1 object is done, 7 objects are skipped.")
	}, time.Minute, 10*time.Millisecond)
	untouched(2)
}

// The place of a dead letter is that which the server states. One whose headers state another place does not have an administrator delete the message
// there, and neither ends a list nor keeps an operation from ending.
func TestForgedPlaceOfADeadLetter(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	js, err := jetstream.New(srv.Connect(t))
	require.NoError(t, err)
	applications(t, js)
	forged := nats.Header{
		jetpull.HeaderDeadSubject: {"orders.new"}, jetpull.HeaderDeadStream: {"ORDERS"}, jetpull.HeaderDeadReason: {"forged"},
		"Nats-Sequence": {"1"}, "Nats-Subject": {"$KV.broker_registry.c"}, "Nats-Time-Stamp": {"2001-01-01T00:00:00Z"}, "Nats-Stream": {"ORDERS"},
	}
	add := func(status string) {
		t.Helper()
		forged["Status"] = []string{status}
		_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "dead.orders", Header: forged})
		require.NoError(t, err)
	}
	for _, status := range []string{"404", "204", "500"} {
		add(status)
	}
	dead := func() uint64 {
		s, err := js.Stream(t.Context(), "DEAD")
		require.NoError(t, err)
		return s.CachedInfo().State.Msgs
	}
	kept := func() {
		t.Helper()
		s, err := js.Stream(t.Context(), "DEAD")
		require.NoError(t, err)
		m, err := s.GetMsg(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, "private payload", string(m.Data))
	}
	c, admin, _ := newConsole(t, "--nats", srv.URL())
	see := func(page string) string { return string(c.ask(t, http.MethodGet, page, admin, "").body) }
	do := func(page, action string) answer {
		header := admin.Clone()
		header.Set("Content-Type", formType)
		return c.ask(t, http.MethodPost, page, header, url.Values{"do": {action}, "subject": {"orders.new"}, "word": {"purge"}}.Encode())
	}
	require.Contains(t, see("/messages?stream=DEAD"), "seq=4")
	require.Contains(t, see("/deadletters?stream=DEAD"), "4 dead letters shown")
	require.Contains(t, see("/message?stream=DEAD&seq=4"), "Dead letter 4")
	for seq, action := range map[int]string{2: "purge", 3: "requeue"} {
		page := fmt.Sprintf("/message?stream=DEAD&seq=%d", seq)
		a := do(page, action)
		require.Equal(t, http.StatusSeeOther, a.status, string(a.body))
		kept()
		require.Equal(t, http.StatusNotFound, c.ask(t, http.MethodGet, page, admin, "").status, "it is gone")
	}
	require.EqualValues(t, 2, dead())
	add("100")
	for _, action := range []string{"requeue-all", "purge-all"} {
		page := "/deadletters?stream=DEAD&reason=forged&do=" + action
		require.Eventually(t, func() bool { return strings.Contains(see(page), "That is 2 dead letters at this moment") }, time.Minute, 10*time.Millisecond)
		begun := do("/deadletters?stream=DEAD&reason=forged", action)
		require.Equal(t, http.StatusSeeOther, begun.status, string(begun.body))
		require.Eventually(t, func() bool {
			return strings.Contains(see("/"+begun.header.Get("Location")), "Ended: 2 objects are done")
		}, time.Minute, 10*time.Millisecond)
		kept()
		require.EqualValues(t, 1, dead())
		add("404")
		add("")
	}
}

// subjectField finds the subject in the form of an action, as a browser would send it.
var subjectField = regexp.MustCompile(`name="subject" value="([^"]*)"`)

// A dead letter whose subject a browser or the console changes, such as one with a no-break space at its end, is not taken for one that the
// administrator has given another subject.
// TestCapturedDeadLettersInTheConsole: an advisory that is stored after them, and dropped, does not hide them.
func TestCapturedDeadLettersInTheConsole(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	js, err := jetstream.New(srv.Connect(t))
	require.NoError(t, err)
	x, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "X", Subjects: []string{"x.>"}})
	require.NoError(t, err)
	d, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "CAPTURED", Subjects: []string{"captured"}})
	require.NoError(t, err)
	_, err = deadletters.Keep(t.Context(), js, "CAPTURED", "X")
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "x.a", []byte("payload"))
	require.NoError(t, err)
	consumer, err := x.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "c", MaxDeliver: 1, AckWait: time.Second})
	require.NoError(t, err)
	_, err = consumer.Fetch(1)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		info, err := d.Info(t.Context())
		return err == nil && info.State.Msgs == 1
	}, time.Minute, 10*time.Millisecond)
	_, err = js.Publish(t.Context(), "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.X.c", []byte("forged"))
	require.NoError(t, err)
	require.NoError(t, deadletters.Capture(t.Context(), js, deadletters.Config{Stream: "CAPTURED", Subject: "captured", Idle: time.Second}))
	_, err = js.Publish(t.Context(), "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.X.c", []byte("forged"))
	require.NoError(t, err)
	c, admin, _ := newConsole(t, "--nats", srv.URL())
	require.Eventually(t, func() bool {
		return strings.Contains(string(c.ask(t, http.MethodGet, "/deadletters", admin, "").body), "delivered MaxDeliver times")
	}, time.Minute, 50*time.Millisecond)
	require.Contains(t, string(c.ask(t, http.MethodGet, "/deadletters?stream=CAPTURED", admin, "").body), "1 dead letter shown")
}

func TestDeadLetterWithAChangedSubject(t *testing.T) {
	srv := servertest.RunServer(t)
	js, err := jetstream.New(srv.Connect(t))
	require.NoError(t, err)
	applications(t, js)
	x, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "X", Subjects: []string{"x.>"}})
	require.NoError(t, err)
	c, admin, _ := newConsole(t, "--nats", srv.URL())
	header := admin.Clone()
	header.Set("Content-Type", formType)
	for _, subject := range []string{"x.new\u00a0", "\u2003x.new", "x.\xff", "x.new\x00", "x.new\u2028"} {
		ack, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "dead.orders", Header: nats.Header{
			jetpull.HeaderDeadSubject: {subject}, jetpull.HeaderDeadStream: {"ORDERS"}, jetpull.HeaderDeadReason: {"forged"},
		}})
		require.NoError(t, err)
		page := fmt.Sprintf("/message?stream=DEAD&seq=%d", ack.Sequence)
		found := subjectField.FindSubmatch(c.ask(t, http.MethodGet, page+"&do=requeue", admin, "").body)
		require.NotNil(t, found, "%q", subject)
		sent := strings.NewReplacer("\x00", "\ufffd", "\r", "", "\n", "").Replace(strings.ToValidUTF8(html.UnescapeString(string(found[1])), "\ufffd"))
		a := c.ask(t, http.MethodPost, page, header, url.Values{"do": {"requeue"}, "subject": {sent}}.Encode())
		require.Equal(t, http.StatusBadGateway, a.status, "%q: %q", subject, sent)
	}
	info, err := x.Info(t.Context())
	require.NoError(t, err)
	require.Zero(t, info.State.Msgs)
}
