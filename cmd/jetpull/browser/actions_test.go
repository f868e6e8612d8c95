package test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// step is an action of a page of [fakes] with the name orders.
type step struct {
	page, label string
	// asks says that the action is confirmed on a page of its own, where fields are typed, as name and text.
	asks   bool
	fields [][2]string
	// done begins the outcome that the page states, and call what a source is asked to do.
	done, call string
}

var tokens = [][2]string{{"producer", "shop"}, {"producertoken", "producer-secret"}, {"channeltoken", "channel-secret"}}

// steps are all actions of all pages.
var steps = []step{
	{page: "consumer?stream=orders&name=orders", label: "Pause", done: "Paused. It resumes in", call: "nats pause orders"},
	{page: "consumer?stream=orders&name=orders2", label: "Resume", done: "Resumed.", call: "nats resume orders2"},
	{page: "consumer?stream=orders&name=orders", label: "Unpin", done: "Unpinned client orders", call: "nats unpin orders"},
	{
		page: "consumer?stream=orders&name=orders", label: "Reset", asks: true, fields: [][2]string{{"seq", "5"}},
		done: "Reset. It begins again at sequence 5.", call: "nats reset orders",
	},
	{page: "consumer?stream=orders&name=orders", label: "Delete", asks: true, done: "Deleted consumer orders", call: "nats delete orders"},
	{page: "message?stream=orders&seq=1", label: "Publish a copy", asks: true, done: "Published a copy", call: "nats publish orders"},
	{
		page: "deadletters?stream=orders", label: "Requeue all that match", asks: true, fields: [][2]string{{"rate", "0.5"}},
		done: "Began to requeue matching dead letters: 20 objects.", call: "nats publish orders",
	},
	{page: "operation?system=console&id=console-1", label: "Cancel the operation", asks: true, done: "Cancelled."},
	{
		page: "deadletters?stream=orders&until=2099-01-01T00:00", label: "Purge all that match", asks: true, done: "Began to purge matching dead letters: 20 objects.",
		call: "nats deletemessage 20",
	},
	{page: "message?stream=orders&seq=1", label: "Requeue", asks: true, done: "Requeued:", call: "nats publish orders"},
	{page: "message?stream=orders&seq=2", label: "Purge", asks: true, done: "Deleted dead letter 2.", call: "nats deletemessage 2"},
	{page: "consumers", label: "Resume all that match", asks: true, done: "Began to resume consumers: 1 object.", call: "nats resume orders2"},
	{page: "consumers?q=orders", label: "Delete all that match", asks: true, done: "Began to delete consumers: 2 objects.", call: "nats delete orders"},

	{page: "brokerconsumer?channel=orders&consumer=orders", label: "Pause", done: "Paused.", call: "POST /channel/orders/consumer/orders/pause"},
	{page: "brokerconsumer?channel=orders&consumer=orders2", label: "Resume", done: "Resumed.", call: "POST /channel/orders/consumer/orders2/resume"},
	{
		page: "brokerconsumer?channel=orders&consumer=orders", label: "Requeue delivered jobs", asks: true, fields: [][2]string{{"rate", "7"}},
		done: "Began to requeue 9 jobs of the broker.", call: `POST /channel/orders/consumer/orders/replay  {"DryRun":false,"Rate":7,"Status":"DELIVERED"}`,
	},
	{
		page: "brokerconsumer?channel=orders&consumer=orders", label: "Delete queued jobs", asks: true, fields: [][2]string{{"rate", "7"}},
		done: "Began to delete 9 jobs of the broker.", call: `POST /channel/orders/consumer/orders/purge  {"DryRun":false,"Rate":7}`,
	},
	{
		page: "failed?system=broker&receiver=orders%2Forders&reason=REFUSED&until=2099-01-01T00:00", label: "Requeue all that match in the broker", asks: true,
		done: "Began to requeue 9 dead jobs of the broker.", call: `POST /dead-jobs/requeue  {"Consumer":"orders/orders","DryRun":false,"Reason":"REFUSED","Until":"2099-01-01T00:00:00Z"}`,
	},
	{
		page: "failed?system=broker&receiver=orders%2Forders&message=m1", label: "Purge all that match in the broker", asks: true,
		done: "Began to purge 9 dead jobs of the broker.", call: `POST /dead-jobs/purge  {"Consumer":"orders/orders","DryRun":false,"Message":"m1"}`,
	},
	{
		page: "brokermessage?channel=orders&id=orders", label: "Requeue", done: "Requeued for orders (dead).",
		call: `POST /channel/c/consumer/orders/replay  {"Message":"orders","Status":"DEAD"}`,
	},
	{
		page: "channel?name=orders", label: "Broadcast a test message", asks: true, fields: tokens, done: "Broadcast message",
		call: `POST /channel/orders/broadcast channel-secret {"test":true}`,
	},
	{
		page: "brokermessage?channel=orders&id=orders&status=scheduled", label: "Cancel the message", asks: true, fields: tokens[1:],
		done: "Cancelled message orders. Nobody gets it.", call: "DELETE /channel/orders/scheduled-message/orders channel-secret",
	},
	{
		page: "operation?system=broker&id=" + url.QueryEscape("/channel/orders/consumer/orders/replay/1"), label: "Cancel the operation", asks: true,
		done: "Cancelled.", call: "DELETE /channel/orders/consumer/orders/replay/1",
	},
	{
		page: "broker?state=paused", label: "Resume all that match", asks: true, done: "Began to resume broker consumers: 1 object.",
		call: "POST /channel/orders/consumer/orders2/resume",
	},

	{page: "receiver?name=orders", label: "Pause", done: "Paused.", call: "PATCH /v1/receivers/orders"},
	{page: "receiver?name=orders2", label: "Resume", done: "Resumed.", call: "PATCH /v1/receivers/orders2"},
	{page: "receiver?name=orders3", label: "Enable", done: "Enabled.", call: "PATCH /v1/receivers/orders3"},
	{
		page: "relay?q=orders3", label: "Enable all that match", asks: true, fields: [][2]string{{"rate", "7"}},
		done: "Began to enable receivers: 1 object.", call: "PATCH /v1/receivers/orders3",
	},
	{
		page: "failed?receiver=orders", label: "Requeue all that match in the relay", asks: true,
		done: "Began to requeue 3 failed messages of the relay.",
		call: `POST /v1/failed:redrive  {"dry_run":false,"filter":{"receiver":"orders"}`,
	},
	{
		page: "failed?receiver=orders&system=broker", label: "Requeue all that match in the broker", asks: true, fields: [][2]string{{"rate", "7"}},
		done: "Began to requeue 9 dead jobs of the broker.", call: `POST /dead-jobs/requeue  {"Consumer":"orders","DryRun":false,"Rate":7}`,
	},
	{
		page: "failed", label: "Skip all that match in the relay", asks: true, fields: [][2]string{{"rate", "2"}},
		done: "Began to skip 3 failed messages of the relay.", call: `POST /v1/failed:skip  {"dry_run":false,"filter":{},"rate":2}`,
	},
	{
		page: "failed?reason=EXHAUSTED&until=2099-01-01T00:00", label: "Purge all that match in the relay", asks: true,
		done: "Began to purge 3 failed messages of the relay.", call: `POST /v1/failed:purge  {"dry_run":false,"filter":{"reason":"EXHAUSTED","until":"2099-01-01T00:00:00Z"},"rate":0}`,
	},
	{
		page: "failed?reason=NO_ANSWER&source=orders", label: "Purge all that match in the broker", asks: true, done: "Began to purge 9 dead jobs of the broker.",
		call: `POST /dead-jobs/purge  {"DryRun":false,"Producer":"orders","Reason":"NO_ANSWER"}`,
	},
	{
		page: "operation?system=broker&id=" + url.QueryEscape("/dead-jobs/operations/requeue-1"), label: "Cancel the operation", asks: true, done: "Cancelled.",
		call: "DELETE /dead-jobs/operations/requeue-1",
	},
	{
		page: "relaymessage?source=orders&id=orders", label: "Requeue", done: "Began to requeue",
		call: `POST /v1/failed:redrive  {"dry_run":false,"filter":{"message":"orders","source":"orders"}`,
	},
	{
		page: "relaymessage?source=orders&id=orders", label: "Skip", asks: true, done: "Began to skip",
		call: `POST /v1/failed:skip  {"dry_run":false,"filter":{"message":"orders","source":"orders"}`,
	},
	{
		page: "relaymessage?source=orders&id=orders", label: "Purge", asks: true, done: "Began to purge",
		call: `POST /v1/failed:purge  {"dry_run":false,"filter":{"message":"orders","source":"orders"}`,
	},
	{page: "operation?system=relay&id=redrive-1", label: "Cancel the operation", asks: true, done: "Cancelled.", call: "DELETE /v1/operations/redrive-1"},

	{
		page: "feed", label: "Requeue the failed items of all that match", asks: true, done: "Began to requeue the failed items of partitions: 1 object.",
		call: "feed retry orders",
	},
	{
		page: "feed", label: "Skip the failed items of all that match", asks: true, done: "Began to skip the failed items of partitions: 1 object.",
		call: "feed skip orders",
	},
	{
		page: "feed", label: "Advance all that match", asks: true, fields: [][2]string{{"gate", "3"}}, done: "Began to advance partitions: 2 objects.",
		call: "feed advance orders 3",
	},
	{page: "partition?id=orders", label: "Requeue all failed", asks: true, done: "1 item is available again.", call: "feed retry orders"},
	{page: "partition?id=orders", label: "Skip all failed", asks: true, done: "1 item is counted as complete.", call: "feed skip orders"},
	{page: "partition?id=orders", label: "Reopen", done: "Reopened.", call: "feed reopen orders"},
	{page: "partition?id=orders2", label: "Seal", asks: true, done: "Sealed.", call: "feed seal orders2"},
	{page: "partition?id=orders2", label: "Advance", asks: true, done: "Advanced to gate 1.", call: "feed advance orders2 1"},
	{page: "partition?id=orders2", label: "Close", asks: true, done: "Closed.", call: "feed close orders2"},
	{page: "item?partition=orders&id=orders", label: "Requeue", done: "1 item is available again.", call: "feed retry orders orders"},
	{page: "item?partition=orders&id=orders", label: "Skip", asks: true, done: "1 item is counted as complete.", call: "feed skip orders orders"},
}

// filters are searches in lists, with what the list shows then.
var filters = [][3]string{
	{"consumers", "orders2", "1 consumer"},
	{"streams", "none", "None of 1 stream matches"},
	{"sets", "none", "0 sets"},
	{"broker", "orders2", "1 consumer"},
	{"relay", "orders3", "1 receiver"},
	{"operations", "none", "0 operations"},
	{"log", "Unpin", "1 action"},
}

// user uses the pages in one way.
type user interface {
	open(page string)
	press(label string)
	fill(name, text string)
	search(text string)
	eventually(texts ...string)
	text() string
}

// clicks uses a tab by clicking.
type clicks struct{ *tab }

func (u clicks) fill(name, text string) { fillField(u.tab, name, text) }
func (u clicks) search(text string)     { fillField(u.tab, "q", text) }

// keys uses a tab by keyboard alone.
type keys struct{ *tab }

func (u keys) press(label string)     { u.focus(label); u.enter() }
func (u keys) fill(name, text string) { u.focusField(name); u.keys(text) }
func (u keys) search(text string)     { u.slash(); u.keys(text) }

// noScript uses a tab without scripts.
type noScript struct{ clicks }

func (u noScript) search(text string) { u.fill("q", text); u.press("Filter") }

func fillField(b *tab, name, text string) { b.typeInto(fmt.Sprintf("main [name=%s]", name), text) }

// act takes a step, and waits until the page states its outcome.
func (s step) act(t *testing.T, u user, f *fakes) {
	t.Helper()
	u.open(s.page)
	if s.asks {
		u.press(s.label + "…")
		u.eventually(s.label + "?")
	}
	for _, field := range s.fields {
		u.fill(field[0], field[1])
	}
	if word, rest, _ := strings.Cut(strings.ToLower(s.label), " "); word == "purge" && rest != "" || s.label == "Delete all that match" {
		u.fill("word", word)
	}
	u.press(s.label)
	u.eventually("Done. " + s.done)
	if s.call != "" {
		f.called(t, s.call)
	}
}

// Each action of each page works by clicking, by keyboard alone, and without scripts.
func TestActions(t *testing.T) {
	startBrowser(t)
	for name, make := range map[string]func(t *testing.T, base string) user{
		"clicks": func(t *testing.T, base string) user { return clicks{openTab(t, base, wide)} },
		"keys":   func(t *testing.T, base string) user { return keys{openTab(t, base, wide)} },
		"without scripts": func(t *testing.T, base string) user {
			b := openTab(t, base, wide)
			b.noScript()
			return noScript{clicks{b}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakes("orders")
			u := make(t, serve(t, f.config()))
			for _, s := range steps {
				s.act(t, u, f)
			}
			u.open("log")
			u.eventually(fmt.Sprintf("%d actions", len(steps)))
			require.NotContains(t, u.text(), "secret", "tokens that a user has typed are nowhere")
			u.open("failed?receiver=orders")
			u.eventually("1 failure", "orders/orders", "Dead letters", "20 dead letters that nobody has looked at", "1 partition is held by 2 failed items")
			for _, one := range filters {
				u.open(one[0])
				u.search(one[1])
				u.eventually(one[2])
			}
		})
	}
}

// pages are all pages of [fakes] with a name.
func pages(name string) []string {
	one := func(page string, pairs ...string) string {
		q := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			q.Set(pairs[i], pairs[i+1])
		}
		return page + "?" + q.Encode()
	}
	replay := "/channel/" + url.PathEscape(name) + "/consumer/" + url.PathEscape(name) + "/replay/1"
	return []string{
		"overview", "sets", one("set", "name", name), "consumers", one("consumer", "stream", name, "name", name), "streams", one("stream", "name", name), one("streams", "all", "1"),
		one("messages", "stream", name, "seq", "1"), one("message", "stream", name, "seq", "1"),
		one("message", "stream", name, "seq", "1", "as", "hex"), one("deadletters", "stream", name), one("message", "stream", name, "seq", "1"),
		one("deadletters", "stream", name, "until", "2099-01-01T00:00", "do", "purge-all"), one("consumers", "q", name, "do", "delete-all"), "broker",
		one("broker", "q", name, "do", "pause-all"), one("channel", "name", name), one("channel", "name", name, "do", "broadcast"),
		one("channel", "name", name, "metadata", name+":"+name), one("channel", "name", name, "status", "scheduled"),
		one("brokermessage", "channel", name, "id", name, "status", "scheduled", "do", "cancel"),
		one("brokerconsumer", "channel", name, "consumer", name), one("brokermessage", "channel", name, "id", name),
		"relay", one("relay", "q", name, "do", "enable-all"), one("receiver", "name", name), "failed", one("failed", "receiver", name, "source", name),
		one("relaymessage", "source", name, "id", name),
		"feed", one("feed", "do", "advance-all"), one("partition", "id", name), one("item", "partition", name, "id", name), "operations",
		one("operation", "system", "relay", "id", "redrive-1"),
		one("operation", "system", "broker", "id", replay), "log", one("log", "q", name),
	}
}

// Each page passes the rules of axe-core at each width, in light and in dark.
func TestEveryPageIsAccessible(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	f := newFakes("orders")
	b := openTab(t, serve(t, f.config()), wide)
	steps[0].act(t, clicks{b}, f) // the log of actions has one
	for _, page := range pages("orders") {
		b.open(page)
		b.eventually("orders")
		b.audit()
	}
}

// hostile are names that attack the page, its layout or its reader.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	"\u202egnp.exe\u202c \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
	"{{.}} ${1} <!-- --> ]]> &lt;",
	strings.Repeat("x", 10<<10),
	"a\x00b\x1b[31m\xff\xfe",
	"javascript:alert(1)",
}

// Whatever a source has in its names, errors and payloads is text on every page.
func TestHostileNames(t *testing.T) {
	startBrowser(t)
	t.Run("source", func(t *testing.T) {
		t.Parallel()
		for _, name := range append(hostile, strings.Join(hostile, " ")) {
			f := newFakes(name)
			base := serve(t, f.config())
			for _, page := range pages(f.name) {
				text := read(t, base+page)
				for _, attack := range []string{"<script>alert", "<img", `href="javascript:`, "\x00"} {
					require.NotContains(t, string(text), attack, page)
				}
			}
		}
	})
	t.Run("browser", func(t *testing.T) {
		t.Parallel()
		f := newFakes(strings.Join(hostile, " "))
		name := f.name
		b := openTab(t, serve(t, f.config()), narrow)
		for _, page := range pages(name) {
			b.open(page)
			b.fits()
			if !strings.HasPrefix(page, "log") {
				b.eventually("<script>alert(1)</script>")
			}
		}
		b.shoot("hostile")
		f.fail(errFor(name))
		for _, page := range pages(name) {
			b.open(page)
			b.fits()
		}
		b.open("consumer?" + url.Values{"stream": {name}, "name": {name}}.Encode())
		b.press("Pause")
		b.eventually("This did not work", "Nothing was changed, since NATS refused the action", "<script>alert(1)</script>")
		b.open("log")
		b.eventually("failed", "<script>alert(1)</script>")
		b.audit()
	})
}

type errFor string

func (e errFor) Error() string { return string(e) }
