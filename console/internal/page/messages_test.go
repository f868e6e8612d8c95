package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
)

// reader is an administrator that reads the pages of a stream.
type reader struct {
	t     *testing.T
	pages *Messages
}

// newReader has the pages of an account with some consumers.
func newReader(t *testing.T, source MessageSource, consumers ...*jetstream.ConsumerInfo) reader {
	s := sample.New()
	t.Cleanup(s.Close)
	runner := operation.NewRunner(slog.New(slog.DiscardHandler))
	all := NewConsumers(s, listed{all: consumers}, runner)
	return reader{t, NewMessages(s, source, all, NewDeadLetters(s, source, runner, all, NewMarks()))}
}

// listed are consumers that do not change.
type listed struct {
	ConsumerSource
	all []*jetstream.ConsumerInfo
}

func (l listed) Consumers(context.Context) ([]*jetstream.ConsumerInfo, error) { return l.all, nil }

func (l listed) StoredAfter(context.Context, *jetstream.ConsumerInfo, uint64) (time.Time, error) {
	return time.Now(), nil
}

func (r reader) open(q url.Values) *view.Page {
	r.t.Helper()
	page, err := r.pages.messages(r.t.Context(), Request{Query: q, Now: time.Now(), Payloads: true})
	require.NoError(r.t, err)
	return page
}

func sequences(page *view.Page) (all []int) {
	for _, row := range page.Parts[0].List.Rows {
		n, _ := strconv.Atoi(row.Cells[0].Text)
		all = append(all, n)
	}
	return all
}

// walk follows a link of the list until there is none, and returns the sequences of all pages.
func (r reader) walk(q url.Values, link func(*view.List) url.Values) (all []int, last url.Values) {
	r.t.Helper()
	for range 1000 {
		page := r.open(q)
		all = append(all, sequences(page)...)
		next := link(page.Parts[0].List)
		if next == nil {
			return all, q
		}
		q = next
	}
	r.t.Fatal("the list has no end")
	return nil, nil
}

// All messages of a stream with gaps are on its pages, once, newest first, and back again.
func TestMessagesWithGaps(t *testing.T) {
	source := newStream("KV_users", "$KV.users.>")
	r := newReader(t, source)
	source.store(9000, jetstream.RawStreamMsg{Subject: "$KV.users.a"})
	kept := func(m *jetstream.RawStreamMsg) bool {
		return m.Sequence%500 == 0 || m.Sequence > 8100 && m.Sequence < 8130
	}
	source.remove(func(m *jetstream.RawStreamMsg) bool { return !kept(m) })
	source.store(1, jetstream.RawStreamMsg{Subject: "$KV.users.b"})
	source.store(70, jetstream.RawStreamMsg{Subject: "$KV.users.a"})
	var want []int
	for _, m := range slices.Backward(source.all) {
		want = append(want, int(m.Sequence))
	}
	q := url.Values{"stream": {"KV_users"}}
	all, oldest := r.walk(q, func(l *view.List) url.Values { return l.Next })
	require.Equal(t, want, all)
	back, newest := r.walk(oldest, func(l *view.List) url.Values { return l.Previous })
	slices.Sort(back)
	require.Subset(t, slices.Compact(back), []int{500, 8101, 9001, 9071})
	require.Equal(t, q, newest, "Previous leads to the live list")

	one := r.open(url.Values{"stream": {"KV_users"}, "subject": {"$KV.users.b"}})
	require.Equal(t, []int{9001}, sequences(one))
	require.Equal(t, "1 message matches", one.Parts[0].List.Found)
	require.Nil(t, one.Parts[0].List.Previous)
	require.Nil(t, one.Parts[0].List.Next)

	// The messages beside a message are those that exist.
	page, err := r.pages.message(t.Context(), Request{Query: url.Values{"stream": {"KV_users"}, "seq": {"8129"}}, Now: time.Now(), Payloads: true})
	require.NoError(t, err)
	facts := page.Parts[0].Facts
	require.Equal(t, "8128", facts[len(facts)-2].Value.Text)
	require.Equal(t, "8500", facts[len(facts)-1].Value.Text)
}

// A search does not tell what a message of a system has.
func TestSearchDoesNotTellSecrets(t *testing.T) {
	source := newStream("COPY", "$KV.>", "orders.new")
	secret := jetstream.RawStreamMsg{Subject: "$KV.partition-x.key", Data: []byte("token-7"), Header: nats.Header{"X-Key": {"token-7"}}}
	source.store(1, secret)
	open := secret
	open.Subject = "orders.new"
	source.store(1, open)
	source.store(2*messageRows, secret)
	r := newReader(t, source)
	for name, value := range map[string]string{"q": "token-7", "header": "x-key: token-7"} {
		list := r.open(url.Values{"stream": {"COPY"}, name: {value}, "seq": {"2"}}).Parts[0].List
		require.Len(t, list.Rows, 1, name)
		require.Equal(t, "2", list.Rows[0].Cells[0].Text)
		require.Nil(t, list.Previous, "nor do the ways to other pages")
	}
}

func TestSearchMessages(t *testing.T) {
	source := newStream("ORDERS", "orders.>")
	r := newReader(t, source)
	for i := range 30 {
		source.store(1000, jetstream.RawStreamMsg{Subject: "orders.new", Data: []byte("nothing")})
		source.store(1, jetstream.RawStreamMsg{
			Subject: "orders.paid", Data: fmt.Appendf(nil, `{"card":%d}`, i),
			Header: nats.Header{"X-Tenant": {"acme", "west"}, "Nats-Msg-Id": {fmt.Sprint("id-", i)}},
		})
	}
	for _, test := range []struct{ name, value string }{{"q", `"card":7}`}, {"id", "id-7"}} {
		found, last := r.walk(url.Values{"stream": {"ORDERS"}, test.name: {test.value}}, func(l *view.List) url.Values { return l.Next })
		require.Equal(t, []int{8008}, found, test.name)
		require.Contains(t, r.open(last).Parts[0].List.Found, "down to the first")
	}
	first := r.open(url.Values{"stream": {"ORDERS"}, "q": {`"card":7}`}})
	require.Empty(t, sequences(first))
	require.Regexp(t, `^0 messages shown; looked at 10,\d{3} messages, down to sequence \d+$`, first.Parts[0].List.Found)
	require.Regexp(t, `^None of the 10,\d{3} messages that were read matches. Next looks further.$`, first.Parts[0].List.Empty)
	for _, header := range []string{"x-tenant: acme", "X-Tenant: west"} {
		found, _ := r.walk(url.Values{"stream": {"ORDERS"}, "header": {header}}, func(l *view.List) url.Values { return l.Next })
		require.Len(t, found, 30)
	}
	require.Equal(t, "30 messages match", r.open(url.Values{"stream": {"ORDERS"}, "subject": {"orders.paid"}}).Parts[0].List.Found)

	_, err := r.pages.messages(t.Context(), Request{Query: url.Values{"stream": {"ORDERS"}, "q": {"card"}}, Now: time.Now()})
	require.ErrorContains(t, err, "may not see payloads", "a search would show what payloads have")

	file := r.open(url.Values{"stream": {"ORDERS"}, "subject": {"orders.paid"}, "download": {"1"}}).Download
	require.Equal(t, "ORDERS.jsonl", file.Name)
	lines := bytes.Split(bytes.TrimSpace(file.Data), []byte("\n"))
	require.Len(t, lines, 30)
	var line struct {
		Sequence uint64
		Subject  string
		Headers  nats.Header
		Data     string
	}
	require.NoError(t, json.Unmarshal(lines[0], &line))
	require.Equal(t, `{"card":29}`, line.Data)
	require.Equal(t, "acme", line.Headers.Get("X-Tenant"))
	require.EqualValues(t, 30030, line.Sequence)
	all := r.open(url.Values{"stream": {"ORDERS"}, "download": {"1"}}).Download
	require.Contains(t, string(all.Data[len(all.Data)-40:]), `{"more_from_sequence":`)
}

func TestMessagesOfATime(t *testing.T) {
	source := newStream("ORDERS", "orders.>")
	r := newReader(t, source)
	source.store(300, jetstream.RawStreamMsg{Subject: "orders.new"})
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, m := range source.all {
		m.Time = begun.Add(time.Duration(i) * time.Minute)
	}
	q := url.Values{"stream": {"ORDERS"}, "since": {"2026-01-01T01:00"}, "until": {"2026-01-01T02:00"}}
	require.Equal(t, "60 messages match", r.open(q).Parts[0].List.Found)
	found, _ := r.walk(q, func(l *view.List) url.Values { return l.Next })
	require.Len(t, found, 60)
	require.Equal(t, 120, found[0])
	require.Equal(t, 61, found[59])
}

// Previous leaves out no message that matches, however few of many do.
func TestPreviousOfASelectiveFilter(t *testing.T) {
	source := newStream("ORDERS", "orders.>")
	r := newReader(t, source)
	const groups = 4
	for range groups { // one that matches, and more than a page reads
		source.store(1, jetstream.RawStreamMsg{Subject: "orders.new", Data: []byte("rare")})
		source.store(maxScanned+5000, jetstream.RawStreamMsg{Subject: "orders.new"})
	}
	q := url.Values{"stream": {"ORDERS"}, "q": {"rare"}}
	down, oldest := r.walk(q, func(l *view.List) url.Values { return l.Next })
	require.Len(t, down, groups)
	up, _ := r.walk(oldest, func(l *view.List) url.Values { return l.Previous })
	slices.Sort(up)
	slices.Sort(down)
	require.Equal(t, down, slices.Compact(up))
}
