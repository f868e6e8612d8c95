package test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console"
)

// A source that does not answer makes its part of the page stale. The page itself answers.
func TestStale(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	fake := &fakeNATS{consumers: []*jetstream.ConsumerInfo{{Stream: "S", Name: "worker", NumPending: 7}}}
	b := openTab(t, serve(t, console.Config{NATS: fake}), wide)
	b.open("consumers")
	b.eventually("worker")
	fake.set(func() { fake.err = errAway })
	b.eventually("Stale: NATS does not answer ("+errAway.Error()+")", "worker", "NATS did not answer the last request.")
	b.audit()
	b.shoot("stale")
	fake.set(func() { fake.err = nil })
	b.gone("Stale")

	hang := make(chan struct{})
	fake.set(func() { fake.hang = hang })
	b.eventually("Stale: NATS does not answer", "worker")
	fake.set(func() { fake.hang = nil })
	close(hang)
	b.gone("Stale")

	// A source that is away is red on the overview too, and in the title.
	fake.set(func() { fake.err = errAway })
	b.open("overview")
	b.eventually("NATS does not answer. The first request without an answer began ")
	require.Equal(t, "In trouble: Overview – jetpull", run(b, chromedp.Title()))
	b.audit()

	first := &fakeNATS{err: errAway}
	b = openTab(t, serve(t, console.Config{NATS: first}), wide)
	b.open("consumers")
	b.eventually("NATS does not answer, so there is nothing to show here yet: " + errAway.Error())
	b.open("consumer?stream=S&name=worker")
	b.eventually("NATS does not answer, so there is nothing to show here yet")
}

// An open page of any kind keeps its last state, in grey, while its source is away. A page that is opened then does not say that there is nothing.
func TestStalePages(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	f := newFakes("orders")
	base := serve(t, f.config())
	// A browser morphs what a stream sends into the page. All pages have that in common.
	b := openTab(t, base, wide)
	b.open("overview")
	b.eventually("orders")
	var open []*live
	for _, page := range []string{
		"overview", "sets", "set?name=orders", "consumer?stream=orders&name=orders", "deadletters", "broker", "channel?name=orders",
		"brokerconsumer?channel=orders&consumer=orders",
		"brokermessage?channel=orders&id=orders", "relay", "receiver?name=orders", "failed",
		"relaymessage?source=orders&id=orders", "relaymessages",
		"feed", "partition?id=orders", "item?partition=orders&id=orders", "operations",
	} {
		p := &plain{t: t, base: base}
		p.open(page)
		l := p.live()
		l.until("orders", func(text string) bool { return strings.Contains(text, "orders") })
		open = append(open, l)
	}
	f.fail(errAway)
	for _, l := range open {
		text := l.until("Stale", func(text string) bool {
			return strings.Contains(text, "Stale: ") && strings.Contains(text, "does not answer ("+errAway.Error())
		})
		require.Contains(t, text, "orders", l.page)
		require.NotContains(t, text, "nothing to show", l.page)
	}
	b.eventually("Stale: ", "does not answer ("+errAway.Error())
	require.Contains(t, b.text(), "orders")
	require.NotContains(t, b.text(), "nothing to show")
	f.fail(nil)
	for _, l := range open {
		l.until("no Stale", func(text string) bool { return !strings.Contains(text, "Stale") })
	}
	b.gone("Stale")

	f = newFakes("orders")
	f.fail(errAway)
	base = serve(t, f.config())
	for _, page := range []string{
		"failed", "feed", "sets", "broker", "brokerconsumer?channel=orders&consumer=orders",
		"relaymessage?source=orders&id=orders",
	} {
		p := &plain{t: t, base: base}
		p.open(page)
		texts := []string{p.text()}
		if p.stream() != "" {
			texts = append(texts, p.live().until(errAway.Error(), func(text string) bool { return strings.Contains(text, errAway.Error()) }))
		} else {
			require.Contains(t, p.text(), errAway.Error(), page)
		}
		for _, text := range texts {
			for _, wrong := range []string{"Not found", "No failure", "No partition", "No set", "This list shows the"} {
				require.NotContains(t, text, wrong, page)
			}
		}
	}
}

// A live change appears on an open page of each family within a second. A machine that is busy may take longer, but not for each change.
func TestLiveChanges(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	f := newFakes("orders")
	b := openTab(t, serve(t, f.config()), wide)
	n := 1000
	for _, page := range []string{
		"overview", "consumers", "consumer?stream=orders&name=orders", "streams", "deadletters", "broker", "brokerconsumer?channel=orders&consumer=orders",
		"relay", "receiver?name=orders", "failed", "feed", "partition?id=orders", "operations",
	} {
		b.open(page)
		b.eventually("orders")
		for begun, took := time.Now(), waitMost; took > time.Second; {
			require.Less(t, time.Since(begun), waitMost, "%s shows a change after %s", page, took)
			n++
			f.count(n)
			changed := time.Now()
			b.eventually(fmt.Sprintf("1,%03d", n-1000))
			took = time.Since(changed)
		}
	}
}

// A payload that is too large for its page is shown in part, which the page states, and the link for all of it is an attachment.
func TestDownloads(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("large ", 8<<20/6)
	f := newFakes("orders")
	f.payload = large
	f.nats.messages[0].Data = []byte(large)
	base := serve(t, f.config())
	for _, page := range []string{
		"message?stream=orders&seq=1", "message?stream=orders&seq=1", "brokermessage?channel=orders&id=orders",
		"item?partition=orders&id=orders",
		"relaymessage?source=orders&id=orders",
	} {
		text := read(t, base+page)
		require.Contains(t, string(text), "These are the first 65,536 bytes of 8,388,60", page)
		require.Less(t, len(text), 200<<10, page)
		links := regexp.MustCompile(`href="([^"]*download[^"]*)"`).FindSubmatch(text)
		require.NotEmpty(t, links, page)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+html.UnescapeString(string(links[1])), nil)
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		all, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, large, strings.Trim(string(all), `"`), page)
		require.Contains(t, answer.Header.Get("Content-Disposition"), "attachment; filename=", page)
		require.Equal(t, "application/octet-stream", answer.Header.Get("Content-Type"), page)
	}
}

// The stream of a hidden tab ends, also that of a tab which was opened in the background, and begins again when the tab is shown.
func TestHiddenTab(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	fake := &fakeNATS{consumers: []*jetstream.ConsumerInfo{{Stream: "S", Name: "worker", NumPending: 7}}}
	c := console.Handler(console.Config{NATS: fake})
	var begun, streams atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("live") {
			streams.Add(1)
			begun.Add(1)
			defer streams.Add(-1)
		}
		c.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		c.Close()
	})
	b := openTab(t, s.URL+"/", wide)
	open := func(n int64) {
		t.Helper()
		require.Eventually(t, func() bool { return begun.Load() > 0 && streams.Load() == n }, waitMost, time.Millisecond)
	}
	b.openHidden("consumers")
	open(0)
	fake.set(func() { fake.consumers[0] = &jetstream.ConsumerInfo{Stream: "S", Name: "worker", NumPending: 4321} })
	b.hide(false)
	b.eventually("4,321")
	open(1)
	b.hide(true)
	open(0)
	fake.set(func() { fake.consumers[0] = &jetstream.ConsumerInfo{Stream: "S", Name: "worker", NumPending: 765} })
	b.hide(false)
	b.eventually("765")
	open(1)
}

// site is a console with tokens that can be changed.
func site(t *testing.T) (base string, admin *atomic.Value) {
	t.Helper()
	admin = &atomic.Value{}
	admin.Store("secret")
	fake := &fakeNATS{consumers: []*jetstream.ConsumerInfo{{Stream: "S", Name: "worker", NumPending: 7}}}
	return serve(t, console.Config{NATS: fake, Access: func(token string) console.User {
		switch token {
		case admin.Load():
			return console.User{Role: console.Admin}
		case "reader":
			return console.User{Role: console.ReadOnly}
		}
		return console.User{}
	}}), admin
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	base, admin := site(t)
	b := openTab(t, base, wide)
	b.open("consumer?stream=S&name=worker")
	b.eventually("Sign in")
	require.NotContains(t, b.text(), "worker")
	b.audit()
	b.shoot("login")
	b.typeInto("input[name=token]", "wrong")
	b.press("Sign in")
	b.eventually("This token is wrong")
	b.audit()
	b.typeInto("input[name=token]", "reader")
	b.press("Sign in")
	b.eventually("7 messages wait", "read-only")
	require.NotContains(t, b.text(), "Pause")
	require.NotContains(t, b.text(), "Delete")
	b.open("consumer?stream=S&name=worker&do=delete")
	b.eventually("Not allowed", "read-only")
	b.audit()
	b.click(".who button")
	b.eventually("Sign in")
	b.typeInto("input[name=token]", "secret")
	b.press("Sign in")
	b.eventually("1 consumer")
	b.open("consumer?stream=S&name=worker")
	b.eventually("Pause")
	// An open page of a session whose token has changed asks for the new one.
	admin.Store("other")
	b.eventually("Sign in")
	require.NotContains(t, b.text(), "worker")
}

// A session begins and ends by click, by keyboard alone and without scripts.
func TestSignInAndOut(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	for name, use := range map[string]func(b *tab) user{
		"clicks":         func(b *tab) user { return clicks{b} },
		"keys":           func(b *tab) user { return keys{b} },
		"without script": func(b *tab) user { b.noScript(); return noScript{clicks{b}} },
	} {
		base, _ := site(t)
		b := openTab(t, base, wide)
		u := use(b)
		u.open("consumer?stream=S&name=worker")
		u.eventually("Sign in")
		u.fill("token", "reader")
		u.press("Sign in")
		u.eventually("7 messages wait")
		if name == "keys" {
			b.focus("Sign out")
			b.enter()
		} else {
			b.click(".who button")
		}
		u.eventually("Sign in")
		require.NotContains(t, u.text(), "worker", name)
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	base, _ := site(t)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	post := func(page string, header map[string]string, form url.Values) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+page, strings.NewReader(form.Encode()))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for k, v := range header {
			r.Header.Set(k, v)
		}
		answer, err := client.Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer
	}
	act := url.Values{"do": {"delete"}}
	require.Equal(t, 401, post("consumer?stream=S&name=worker", nil, act).StatusCode, "without a session")
	in := post("login", nil, url.Values{"token": {"reader"}, "next": {"//other.example/"}})
	require.Equal(t, 303, in.StatusCode)
	require.Equal(t, "./", in.Header.Get("Location"), "the page after the sign-in is one of the console")
	cookie := in.Header.Get("Set-Cookie")
	require.Contains(t, cookie, "HttpOnly")
	require.Contains(t, cookie, "SameSite=Strict")
	require.Contains(t, cookie, "Max-Age=43200")
	require.NotContains(t, cookie, "Secure")
	require.Contains(t, post("login", map[string]string{"X-Forwarded-Proto": "https"}, url.Values{"token": {"reader"}}).Header.Get("Set-Cookie"),
		"Secure")
	require.Equal(t, 403, post("consumer?stream=S&name=worker", nil, act).StatusCode, "a reader changes nothing")
	in = post("login", nil, url.Values{"token": {"secret"}})
	require.Equal(t, 303, in.StatusCode)
	for name, header := range map[string]map[string]string{
		"of another site":   {"Sec-Fetch-Site": "cross-site"},
		"of another origin": {"Origin": "http://other.example"},
	} {
		require.Equal(t, 403, post("consumer?stream=S&name=worker", header, act).StatusCode, name)
		require.Equal(t, 403, post("login", header, url.Values{"token": {"secret"}}).StatusCode, name)
	}
	require.Equal(t, 303, post("consumer?stream=S&name=worker", map[string]string{"Sec-Fetch-Site": "same-origin"}, act).StatusCode)
	require.Equal(t, 409, post("consumer?stream=S&name=worker", nil, url.Values{"do": {"resume"}}).StatusCode, "the page does not offer the action")
	require.Equal(t, 404, post("consumer?stream=S&name=none", nil, act).StatusCode)
	require.Equal(t, 303, post("logout", nil, nil).StatusCode)
	require.Equal(t, 401, post("consumer?stream=S&name=worker", nil, act).StatusCode, "after the sign-out")

	// After ten wrong tokens in a minute, another wrong one is slowed down. The right one is never refused.
	for range 10 {
		wrong := post("login", nil, url.Values{"token": {"wrong"}})
		require.Equal(t, 403, wrong.StatusCode)
	}
	limited := post("login", nil, url.Values{"token": {"wrong"}})
	require.Equal(t, 429, limited.StatusCode)
	require.Equal(t, 303, post("login", nil, url.Values{"token": {"secret"}}).StatusCode)
	seconds, err := strconv.Atoi(limited.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, seconds)
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	base := serve(t, console.Config{NATS: &fakeNATS{}, Loopback: true})
	for path, status := range map[string]int{"consumers": 200, "none": 404, "static/app.js": 200, "static/none": 404, "": 303} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		require.NoError(t, err)
		answer, err := http.DefaultTransport.RoundTrip(r)
		require.NoError(t, err)
		_ = answer.Body.Close()
		require.Equal(t, status, answer.StatusCode, path)
		policy := answer.Header.Get("Content-Security-Policy")
		require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "+
			"frame-ancestors 'none'; base-uri 'none'", policy)
		require.Equal(t, "nosniff", answer.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-referrer", answer.Header.Get("Referrer-Policy"))
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"consumers", nil)
	require.NoError(t, err)
	r.Host = "other.example"
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, 403, answer.StatusCode)
	require.Contains(t, string(text), `"other.example"`)
}
