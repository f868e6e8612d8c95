package security

import (
	"bufio"
	"context"
	"net/http"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The listener of the feed's metrics answers three routes, to this machine's names only, and nothing else.
func TestFeedMetrics(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := interruptible(ctx, t, "feed", "--db", "sqlite:"+filepath.Join(t.TempDir(), "feed.db"), "--metrics", "127.0.0.1:0", "--exec", "true")
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	found := make(chan string, 1)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		at := regexp.MustCompile(`"url":"(http://[^/]+)/metrics"`)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if m := at.FindStringSubmatch(lines.Text()); m != nil {
				found <- m[1]
			}
		}
		close(found)
	}()
	t.Cleanup(func() {
		cancel()
		<-drained
		_ = cmd.Wait()
	})
	url, ok := <-found
	require.True(t, ok, "the feed ended")
	s := &system{name: "feed", url: url, client: &http.Client{Timeout: time.Minute}}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		require.Equal(t, http.StatusOK, s.ask(t, http.MethodGet, path, nil, "").status, path)
		for _, host := range []string{"evil.example", "127.0.0.1.evil.example", "10.1.2.3"} {
			require.Equal(t, http.StatusForbidden, s.ask(t, http.MethodGet, path, http.Header{"Host": {host}}, "").status, "%s for host %s", path, host)
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
			require.Equal(t, http.StatusMethodNotAllowed, s.ask(t, method, path, nil, "x").status, "%s %s", method, path)
		}
	}
	for _, path := range []string{"/", "/debug/pprof/", "/debug/vars", "/..%2f..%2fetc%2fpasswd", "/metrics/x", "/feed.db"} {
		require.Equal(t, http.StatusNotFound, s.ask(t, http.MethodGet, path, nil, "").status, path)
	}
	s.alive(t)
}
