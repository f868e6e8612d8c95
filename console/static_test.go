package console

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// A page and a file are compressed only for a client that takes gzip, and a cache learns that they differ.
func TestEncodings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Handler(Config{Log: slog.New(slog.DiscardHandler)})
		defer c.Close()
		for _, path := range []string{"/overview", "/static/app.js"} {
			for accepts, want := range map[string]string{
				"": "", "gzip": "gzip", "br, gzip;q=0.5": "gzip", "GZIP ; Q=1": "gzip", "gzip;q=0": "", "deflate, gzip; q=0.000": "", "gzip;q=x": "",
				"notgzip": "", "identity": "",
			} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
				r.Header.Set("Accept-Encoding", accepts)
				answer := httptest.NewRecorder()
				c.ServeHTTP(answer, r)
				require.Equal(t, want, answer.Header().Get("Content-Encoding"), "%s for %q", path, accepts)
				require.Equal(t, "Accept-Encoding", answer.Header().Get("Vary"), path)
			}
		}
	})
}

// refusing is a system with another token than the console has.
type refusing struct{}

func (refusing) Call(context.Context, string, string, any, any) error {
	return fmt.Errorf("relay: answered 401 unauthorized: %w", fs.ErrPermission)
}

// A system that refuses the console's token answers, and the pages say what is wrong.
func TestARefusedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Handler(Config{Relay: refusing{}, Log: slog.New(slog.DiscardHandler)})
		defer c.Close()
		synctest.Wait()
		for _, page := range []string{"overview", "relay", "operations", "receiver?name=a", "relaymessage?source=a&id=b", "failed"} {
			answer := httptest.NewRecorder()
			c.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+page, nil))
			require.Contains(t, answer.Body.String(), "relay refuses the token of the console", page)
			require.NotContains(t, answer.Body.String(), "relay does not answer", page)
		}
	})
}
