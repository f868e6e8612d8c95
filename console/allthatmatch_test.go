package console

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// receivers is a relay with 120 receivers.
type receivers struct{ patches atomic.Int64 }

func (r *receivers) Call(_ context.Context, method, path string, _, answer any) error {
	if method == http.MethodPatch {
		r.patches.Add(1)
		return nil
	}
	if path != "/v1/receivers" {
		return json.Unmarshal([]byte(`{}`), answer)
	}
	all := make([]string, 120)
	for i := range all {
		all[i] = fmt.Sprintf(`{"name":"shop-%c%d","state":{}}`, 'a'+i/10, i%10)
	}
	return json.Unmarshal([]byte(`{"items":[`+strings.Join(all, ",")+`]}`), answer)
}

// The confirmation states what an action is for, its operation is on the pages, and a session that is read-only has none of this.
func TestAllThatMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relay := &receivers{}
		c := Handler(Config{Relay: relay, Log: slog.New(slog.DiscardHandler), Access: func(token string) User {
			return User{Role: map[string]Role{"admin": Admin, "reader": ReadOnly}[token]}
		}})
		defer c.Close()
		synctest.Wait()
		cookie, did := "", ""
		use := func(method, page string, form url.Values) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), method, "/"+page, strings.NewReader(form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Cookie", cookie+"; "+did)
			answer := httptest.NewRecorder()
			c.ServeHTTP(answer, r)
			if set := answer.Header().Get("Set-Cookie"); strings.HasPrefix(set, "jetpull-console-did") {
				did, _, _ = strings.Cut(set, ";")
			}
			return answer
		}
		signIn := func(token string) {
			cookie, _, _ = strings.Cut(use(http.MethodPost, "login", url.Values{"token": {token}}).Header().Get("Set-Cookie"), ";")
		}
		signIn("reader")
		list := use(http.MethodGet, "relay?q=shop-", nil).Body.String()
		require.Contains(t, list, "120 receivers")
		require.NotContains(t, list, "all that match")
		require.Equal(t, http.StatusForbidden, use(http.MethodGet, "relay?do=pause-all", nil).Code)
		require.Equal(t, http.StatusForbidden, use(http.MethodPost, "relay", url.Values{"do": {"pause-all"}}).Code)

		signIn("admin")
		require.Contains(t, use(http.MethodGet, "relay?q=shop-a", nil).Body.String(), `href="relay?do=pause-all&amp;q=shop-a">Pause all that match…</a>`)
		dryRun := use(http.MethodGet, "relay?q=shop-a&do=pause-all", nil).Body.String()
		require.Contains(t, dryRun, "Pause all receivers that match name shop-a.")
		require.Contains(t, dryRun, "That is 10 receivers at this moment: shop-a0, shop-a1, shop-a2, shop-a3, shop-a4, …. Nothing has been changed yet.")
		require.Contains(t, dryRun, `name="rate" value="50"`)
		require.Zero(t, relay.patches.Load())
		begun := use(http.MethodPost, "relay?q=shop-a", url.Values{"do": {"pause-all"}, "rate": {"2"}})
		require.Equal(t, http.StatusSeeOther, begun.Code)
		operation := begun.Header().Get("Location")
		time.Sleep(2900 * time.Millisecond)
		synctest.Wait()
		require.NotContains(t, use(http.MethodGet, "relay", nil).Body.String(), "Began to pause", "the outcome is for the page that asked")
		page := use(http.MethodGet, operation, nil).Body.String()
		for _, text := range []string{"Began to pause receivers: 10 objects.", "Running", "of 10 (", "Cancel the operation…"} {
			require.Contains(t, page, text)
		}
		require.NotContains(t, operation, "did", "the address of a page that is opened later has no outcome")
		require.NotContains(t, use(http.MethodGet, operation, nil).Body.String(), "Began to pause", "after a reload the outcome is not shown again")
		require.Equal(t, http.StatusSeeOther, use(http.MethodPost, operation, url.Values{"do": {"cancel"}}).Code)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.InDelta(t, 6, relay.patches.Load(), 1)
		require.Contains(t, use(http.MethodGet, operation, nil).Body.String(), "not touched.")
		log := use(http.MethodGet, "log", nil).Body.String()
		for _, text := range []string{"Pause all that match", "receivers that match name shop-a", "Began to pause receivers: 10 objects."} {
			require.Contains(t, log, text)
		}
	})
}

// failed is a relay with a failed message.
type failed struct{ begun atomic.Int64 }

func (f *failed) Call(_ context.Context, method, _ string, _, answer any) error {
	if method == http.MethodPost {
		f.begun.Add(1)
	}
	return json.Unmarshal([]byte(`{"items":[{"id":"1"}]}`), answer)
}

// Nobody purges all without a filter, or without typing the word.
func TestPurgeAllNeedsAFilterAndAWord(t *testing.T) {
	relay := &failed{}
	c := Handler(Config{Relay: relay, Log: slog.New(slog.DiscardHandler)})
	defer c.Close()
	post := func(page, word string) *httptest.ResponseRecorder {
		form := url.Values{"do": {"purge-relay"}, "word": {word}}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+page, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer := httptest.NewRecorder()
		c.ServeHTTP(answer, r)
		return answer
	}
	require.Equal(t, http.StatusConflict, post("failed", "purge").Code, "there is no filter")
	wrong := post("failed?receiver=billing", "")
	require.Equal(t, http.StatusBadRequest, wrong.Code)
	require.Contains(t, wrong.Body.String(), "Nothing was changed: the word to confirm this is")
	require.Zero(t, relay.begun.Load())
	require.Equal(t, http.StatusSeeOther, post("failed?receiver=billing", "purge").Code)
	require.EqualValues(t, 1, relay.begun.Load())
}
