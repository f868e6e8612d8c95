package console

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/sample"
)

// changing is a relay whose answers differ. It counts the requests.
type changing struct{ requests atomic.Int64 }

func (c *changing) Call(_ context.Context, _, _ string, _, answer any) error {
	return json.Unmarshal(fmt.Appendf(nil, `{"items":[{"id":"1","error":"error %d"}]}`, c.requests.Add(1)), answer)
}

// 100 open pages cost a source what one costs, and get the same. When they are closed, nothing of them is left.
func TestOpenPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relay := &changing{}
		c := Handler(Config{Relay: relay, Log: slog.New(slog.DiscardHandler)})
		defer c.Close()
		ctx, closeAll := context.WithCancel(t.Context())
		var pages []*httptest.ResponseRecorder
		var streams sync.WaitGroup
		open := func(n int) {
			for range n {
				page := httptest.NewRecorder()
				pages = append(pages, page)
				streams.Go(func() { c.ServeHTTP(page, httptest.NewRequestWithContext(ctx, http.MethodGet, "/failed?live=1", nil)) })
			}
			synctest.Wait()
			// After the first samples, of which a page that has just been opened may have one, and away from the moments of the others.
			time.Sleep(time.Second + leastRender)
			synctest.Wait()
		}
		requests := func() int64 {
			before := relay.requests.Load()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			return relay.requests.Load() - before
		}
		open(1)
		one := requests()
		require.Positive(t, one)
		open(99)
		require.Equal(t, one, requests())
		newest := func(page *httptest.ResponseRecorder) string {
			events := page.Body.String()
			return events[strings.LastIndex(events, `<section class="part" id="failed-relay"`):]
		}
		for _, page := range pages {
			require.Equal(t, newest(pages[0]), newest(page))
		}
		closeAll()
		streams.Wait()
		require.Empty(t, c.renders.all)
		requests() // the last sample before the longer interval
		require.Less(t, requests(), one/10)
	})
}

// hanging is a system that does not answer.
type hanging struct{}

func (hanging) Call(ctx context.Context, _, _ string, _, _ any) error {
	<-ctx.Done()
	return ctx.Err()
}

func (h hanging) Send(ctx context.Context, method, path string, _ http.Header, body, answer any) (http.Header, error) {
	return nil, h.Call(ctx, method, path, body, answer)
}

// A page waits for all of its sources together no longer than for one.
func TestAPageDoesNotWaitForSourcesInTurn(t *testing.T) {
	for _, page := range []string{
		"overview", "broker", "brokerconsumer?channel=a&consumer=b", "channel?name=a", "brokermessage?channel=a&id=b", "relay", "receiver?name=a",
		"relaymessage?source=a&id=b", "failed", "operations",
	} {
		synctest.Test(t, func(t *testing.T) {
			c := Handler(Config{Broker: hanging{}, Relay: hanging{}, Log: slog.New(slog.DiscardHandler)})
			defer c.Close()
			answer := httptest.NewRecorder()
			begun := time.Now()
			c.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+page, nil))
			require.Equal(t, sample.Patience, time.Since(begun), page)
			require.Regexp(t, "has not answered yet|does not answer", answer.Body.String(), page)
		})
	}
}
