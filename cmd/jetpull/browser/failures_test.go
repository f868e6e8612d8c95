package test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	brokerclient "github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/relay"
	"github.com/jetpull/jetpull/relay/client"
)

// failing are a relay and a broker, each with messages that all failed, until repaired.
type failing struct {
	relay    *client.Client
	relayURL string
	broker   *brokerclient.Admin
	repaired atomic.Bool
}

// startFailing sends n messages to the receiver billing of the relay, and to the consumers billing and crm of the broker.
func startFailing(t *testing.T, n int) *failing {
	t.Helper()
	f := &failing{}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !f.repaired.Load() {
			http.Error(w, "no", http.StatusBadRequest)
		}
	}))
	t.Cleanup(target.Close)
	cfg, err := relay.LoadConfig(relay.Sources{Flags: map[string]string{"listen": "127.0.0.1:0", "store-dir": t.TempDir(), "admin-token": "secret"}})
	require.NoError(t, err)
	node, err := relay.Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { _ = node.Stop(context.Background()) })
	f.relayURL = node.URL()
	f.relay = client.New(f.relayURL, "secret", nil)
	require.NoError(t, f.relay.Call(t.Context(), http.MethodPut, "/v1/receivers/billing", map[string]any{"post_endpoint": target.URL}, nil))

	dir := t.TempDir()
	file := filepath.Join(dir, "broker.cfg")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `[broker]
max-retry=0
[initial-channels]
orders=Orders
unused=Unused
[initial-producers]
shop=Shop
[initial-consumers]
billing=%s
crm=%s
[initial-channel-tokens]
orders=channel-token
unused=channel-token
[initial-producer-tokens]
shop=producer-token
[billing]
token=consumer-token
channel=orders
[crm]
token=consumer-token
channel=orders
`, target.URL, "http://127.0.0.1:1/"), 0o600))
	brokerCfg, err := broker.LoadConfig(broker.Sources{
		File:  file,
		Flags: map[string]string{"listen": "127.0.0.1:0", "store-dir": filepath.Join(dir, "store"), "admin-token": "secret"},
	})
	require.NoError(t, err)
	brokerNode, err := broker.Start(t.Context(), brokerCfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { _ = brokerNode.Stop(context.Background()) })
	f.broker = brokerclient.NewAdmin(brokerNode.URL(), "secret", nil)
	producer := brokerclient.Producer{Channel: "orders", ChannelToken: "channel-token", ID: "shop", Token: "producer-token"}
	for i := range n {
		id := fmt.Sprintf("m%02d", i)
		_, err := f.relay.Send(t.Context(), client.Message{Source: "shop", ID: id, Receiver: "billing", Payload: 1})
		require.NoError(t, err)
		f.awaitFailed(t, id)
		_, err = brokerclient.New(brokerNode.URL(), nil).Broadcast(t.Context(), producer, brokerclient.Message{ID: id, Payload: []byte("1")})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		var dead, failed struct{ Count, Matched int }
		require.NoError(t, f.broker.Call(t.Context(), http.MethodPost, "/dead-jobs/requeue", map[string]any{"DryRun": true}, &dead))
		require.NoError(t, f.relay.Call(t.Context(), http.MethodPost, "/v1/failed:redrive", map[string]any{"filter": map[string]any{}, "dry_run": true},
			&failed))
		return dead.Count == 2*n && failed.Matched == n
	}, waitMost, waitMost/1000)
	return f
}

// awaitFailed waits until a message is on the relay's list. The relay lists messages as they come to it: two that fail at once may be
// there in the other order than they failed in.
func (f *failing) awaitFailed(t *testing.T, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var list struct{ Items []any }
		require.NoError(t, f.relay.Call(t.Context(), http.MethodGet, "/v1/failed?message="+id, nil, &list))
		return len(list.Items) == 1
	}, waitMost, time.Millisecond)
}

var (
	failureRow  = regexp.MustCompile(`<tr data-row="f-((?:relay|broker)-[^"]+)"`)
	failureTime = regexp.MustCompile(`<td class="number" data-title="Failed"><span class="when"><time[^>]* datetime="([^"]+)"`)
	nextLink    = regexp.MustCompile(`<a href="(failed\?[^"]+)">Next</a>`)
)

// The pages of the list have each failure of each system once, newest first, and a filter means the same to all systems.
func TestFailuresOfAllSystems(t *testing.T) {
	t.Parallel()
	const n = 60
	f := startFailing(t, n)
	base := serve(t, console.Config{Relay: f.relay, Broker: f.broker})
	walk := func(query string) (found map[string]int) {
		t.Helper()
		found = map[string]int{}
		for _, system := range []string{"relay", "broker"} {
			seen, last, page := map[string]bool{}, "9999", "failed?"+query
			for pages := 0; page != ""; pages++ {
				require.Less(t, pages, 3*n, "the pages have an end")
				_, text, _ := strings.Cut(string(read(t, base+page)), `<section class="part" id="failed-`+system+`"`)
				text, _, _ = strings.Cut(text, "</section>")
				for _, row := range failureRow.FindAllStringSubmatch(text, -1) {
					require.False(t, seen[row[1]], row[1])
					require.True(t, strings.HasPrefix(row[1], system), row[1])
					seen[row[1]] = true
					found[system]++
				}
				for _, at := range failureTime.FindAllStringSubmatch(text, -1) {
					require.LessOrEqual(t, at[1], last)
					last = at[1]
				}
				page = ""
				if next := nextLink.FindStringSubmatch(text); next != nil {
					page = html.UnescapeString(next[1])
				}
			}
		}
		return found
	}
	for query, want := range map[string]map[string]int{
		"":                        {"relay": n, "broker": 2 * n},
		"system=relay":            {"relay": n},
		"receiver=billing":        {"relay": n, "broker": n},
		"receiver=orders/crm":     {"broker": n},
		"source=shop&message=m07": {"relay": 1, "broker": 2},
		"source=none":             {},
		"reason=NO_ANSWER":        {"broker": n},
		"reason=PERMANENT":        {"relay": n},
		"stage=to_receiver":       {"relay": n},
		"stage=to_sender":         {},
		"since=2099-01-01T00:00":  {},
		"since=2020-01-01T00:00":  {"relay": n, "broker": 2 * n},
		"until=2020-01-01T00:00":  {},
		"until=2099-01-01T00:00":  {"relay": n, "broker": 2 * n},
		"since=2020-01-01T00:00&until=2098-01-01T00:00": {"relay": n, "broker": 2 * n},
		"reason=EXHAUSTED":         {},
		"system=broker&reason=":    {"broker": 2 * n},
		"system=broker&stage=to_s": {},
	} {
		require.Equal(t, want, walk(query), query)
	}

	for system, want := range map[string]string{"relay": fmt.Sprint(n, " failed messages"), "broker": fmt.Sprint(2*n, " dead jobs")} {
		require.Contains(t, string(read(t, base+"failed?since=2020-01-01T00:00&until=2099-01-01T00:00&do=requeue-"+system)),
			fmt.Sprintf("That is %s of the %s at this moment.", want, system), "an action is for what the list shows")
	}
	p := &plain{t: t, base: base}
	p.open("failed?since=2021-01-01T00:00&until=2020-01-01T00:00")
	require.Equal(t, http.StatusBadRequest, p.status)
	require.Contains(t, p.text(), "is not after")

	// The numbers of the reasons lead to their failures.
	p.open("failed")
	p.eventually("permanent error", "refused", "no answer")
	require.Contains(t, string(read(t, base+"failed?receiver=orders%2Fcrm")),
		fmt.Sprintf(`<dt>no answer</dt><dd><a href="failed?reason=NO_ANSWER&amp;receiver=orders%%2Fcrm"><bdi>%d</bdi></a>`, n))

	// So does the list of a channel's messages.
	rows := func(page, begin string, next bool) (n int) {
		t.Helper()
		text := string(read(t, base+page))
		require.Equal(t, next, strings.Contains(text, ">Next</a>"), page)
		return strings.Count(text, `<tr data-row="`+begin)
	}
	const orders = "channel?name=orders&"
	for list, queries := range map[[2]string]map[string]int{
		{orders, "messages-"}: {
			"id=m01": 1, "id=none": 0, "eventType=order.*": 0, "metadata=X-Tenant:acme": 0, "since=2099-01-01T00:00": 0, "until=2020-01-01T00:00": 0,
			"until=2099-01-01T00:00":                               50,
			"id=m01&since=2020-01-01T00:00&until=2099-01-01T00:00": 1,
		},
	} {
		for query, want := range queries {
			require.Equal(t, want, rows(list[0]+query, list[1], want == 50), query)
		}
	}
	p.open(orders)
	p.press("Next")
	p.eventually(fmt.Sprintf("%d messages shown", n-50))
	p.open(orders + "metadata=acme")
	p.eventually("Give the metadata header as NAME:VALUE")

	// A channel without consumers is on the list.
	p.open("broker")
	p.eventually("2 consumers, and 1 channel without consumers")
	p.search("unused")
	p.eventually("0 consumers, and 1 channel without consumers")
	p.press("unused")
	p.eventually("The channel has no message that matches.")

	// The page offers the reasons and stages that the systems know, and no others.
	text := read(t, base+"failed")
	for _, one := range []struct {
		call interface {
			Call(ctx context.Context, method, path string, body, answer any) error
		}
		path, field string
	}{{f.relay, "/v1/failed?reason=none", "reason"}, {f.relay, "/v1/failed?stage=none", "stage"}, {f.broker, "/dead-jobs?reason=none", "reason"}} {
		err := one.call.Call(t.Context(), http.MethodGet, one.path, nil, nil)
		require.Error(t, err)
		_, names, ok := strings.Cut(err.Error(), "is none of ")
		require.True(t, ok, err)
		for _, name := range strings.FieldsFunc(names, func(r rune) bool { return strings.ContainsRune("[], \n", r) }) {
			require.Contains(t, string(text), `<option value="`+name+`"`, one.path)
			require.NoError(t, one.call.Call(t.Context(), http.MethodGet, strings.Replace(one.path, "none", name, 1), nil, nil))
		}
	}
}

// An operator finds the failures of all systems, and has all that match tried again.
func TestFailures(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	f := startFailing(t, 8)
	b := openTab(t, serve(t, console.Config{Relay: f.relay, Broker: f.broker}), wide)
	b.open("brokerconsumer?channel=orders&consumer=crm")
	b.eventually("8 dead jobs. Requeue them")
	b.press("8")
	b.eventually("8 failures", "orders/crm")
	b.open("failed")
	b.eventually("8 failures", "16 failures", "permanent error", "refused", "The consumer answered with status 400.", "no answer", "The consumer did not answer.")
	b.audit()
	b.shoot("failures")
	b.open("failed?receiver=billing")
	b.eventually("8 failures")
	b.press("Requeue all that match in the relay…")
	b.eventually("That is 8 failed messages of the relay at this moment. Nothing has been changed yet.")
	b.audit()
	b.shoot("failures-requeue")
	f.repaired.Store(true)
	b.press("Requeue all that match in the relay")
	b.eventually("Done. Began to requeue 8 failed messages of the relay.", "failed messages, receiver billing")
	b.audit()
	b.open("failed?receiver=billing&system=broker")
	b.press("Requeue all that match in the broker…")
	b.eventually("That is 8 dead jobs of the broker at this moment. Nothing has been changed yet.")
	b.press("Requeue all that match in the broker")
	b.eventually("Done. Began to requeue 8 dead jobs of the broker.", "dead jobs, consumer billing")
	b.open("failed?receiver=billing")
	b.eventually("No failure matches.")
	b.gone("8 failures")
	b.open("failed")
	b.eventually("8 failures")
	b.gone("Purge all that match in the broker…")
	b.open("failed?receiver=crm")
	b.press("Purge all that match in the broker…")
	b.eventually("That is 8 dead jobs of the broker at this moment.", "cannot be undone")
	// It takes eight seconds, so it is not done when it is cancelled.
	fillField(b, "rate", "1")
	b.typeInto("input[name=word]", "purge")
	b.press("Purge all that match in the broker")
	b.eventually("Began to purge 8 dead jobs of the broker.", "Running")
	b.press("Cancel the operation…")
	b.press("Cancel the operation")
	b.eventually("Cancelled:")

	// The failures of a system that does not answer are not known. Those of the other are shown, and can be acted on.
	b = openTab(t, serve(t, console.Config{Relay: client.New("http://127.0.0.1:1", "secret", nil), Broker: f.broker}), wide)
	b.open("failed?receiver=crm")
	b.eventually("relay does not answer, so there is nothing to show here yet", "no answer", "Requeue all that match in the broker…")
	b.audit()
	b.shoot("failures-away")
}

// roundTripper is a function that makes requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The failures of a system that no longer answers stay on an open page, in grey. A page that is opened then does not say that there are none, and has the
// failures and the actions of the others.
func TestFailuresOfASystemThatGoesAway(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	f := startFailing(t, 2)
	var away atomic.Bool
	relay := client.New(f.relayURL, "secret", &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if away.Load() {
			return nil, errors.New("the relay is away")
		}
		return http.DefaultTransport.RoundTrip(r)
	})})
	base := serve(t, console.Config{Relay: relay, Broker: f.broker})
	rows := func() (found map[string]int, text string) {
		page := read(t, base+"failed")
		found = map[string]int{}
		for _, row := range failureRow.FindAllSubmatch(page, -1) {
			system, _, _ := strings.Cut(string(row[1]), "-")
			found[system]++
		}
		return found, string(page)
	}
	b := openTab(t, base, wide)
	b.open("failed")
	b.eventually("2 failures", "4 failures", "Requeue all that match in the relay…", "Requeue all that match in the broker…")

	away.Store(true)
	b.eventually("Stale: relay does not answer", "2 failures", "4 failures")
	found, text := rows()
	require.Equal(t, map[string]int{"broker": 4}, found)
	require.Contains(t, text, "relay does not answer, so there is nothing to show here yet")
	require.NotContains(t, text, "No failure matches")
	require.NotContains(t, text, "that match in the relay")
	require.Contains(t, text, "Requeue all that match in the broker")

	away.Store(false)
	b.gone("Stale")
	found, _ = rows()
	require.Equal(t, map[string]int{"relay": 2, "broker": 4}, found)
}
