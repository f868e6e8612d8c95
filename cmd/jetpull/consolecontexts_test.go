package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// Each context has a console with its own consumers and its own bucket. One sign-in is for all.
func TestConsoleOfContexts(t *testing.T) {
	ownContexts(t)
	byPath := ""
	servers := map[string]*servertest.Server{}
	for _, name := range []string{"shop", "bank"} {
		srv := servertest.RunServer(t)
		servers[name] = srv
		byPath = writeContext(t, name, map[string]any{"url": srv.URL()})
		_, err := srv.JetStream(t, srv.Connect(t)).CreateStream(t.Context(), jetstream.StreamConfig{Name: "OF-" + name})
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		args := []string{"console", "--listen", "127.0.0.1:0", "--context", "shop", "--context", byPath, "--console-token", "ada=secret"}
		code <- execute(ctx, args, strings.NewReader(""), in, io.Discard)
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	base, ok := strings.CutPrefix(strings.TrimSpace(line), "console: listening on ")
	require.True(t, ok, line)
	browser := newBrowser(t)
	answer, err := browser.PostForm(base+"c/bank/login", url.Values{"token": {"secret"}})
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	for name, other := range map[string]string{"shop": "bank", "bank": "shop"} {
		_, text := page(t, browser, base+"c/"+name+"/streams")
		require.Contains(t, text, "OF-"+name)
		require.NotContains(t, text, "OF-"+other)
		require.Contains(t, text, `<a href="../`+other+`/">`)
		js := servers[name].JetStream(t, servers[name].Connect(t))
		require.Eventually(t, func() bool {
			_, err := js.KeyValue(t.Context(), "jetpull-console")
			return err == nil
		}, time.Minute, 10*time.Millisecond)
	}
	answer, err = browser.Get(base)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, "/c/shop/overview", answer.Request.URL.Path)
	cancel()
	require.Zero(t, <-code)
}

func TestConsoleOfContextsRefuses(t *testing.T) {
	ownContexts(t)
	for _, name := range []string{"shop", "a bank"} {
		writeContext(t, name, map[string]any{"url": "nats://127.0.0.1:1"})
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--context", "shop", "--context", "shop"}, `context "shop" is given twice`},
		{[]string{"--context", "shop", "--context", "a bank"}, `context "a bank"`},
		{[]string{"--context", "shop", "--context", "none"}, `there is no context "none"`},
		{[]string{"--context", "shop", "--context", "a", "--broker", "http://127.0.0.1:1"}, "--broker is of one console"},
		{[]string{"--context", "shop", "--context", "a", "--relay", "http://127.0.0.1:1"}, "--relay is of one console"},
		{[]string{"--context", "shop", "--context", "a", "--feed", "sqlite:feed.db"}, "--feed is of one console"},
		{[]string{"--context", "shop", "--context", "a", "--console-name", "test"}, "--console-name is of one console"},
		{[]string{"--context", "shop", "--context", "a", "--nats", "nats://127.0.0.1:1"}, "--server"},
		{[]string{"--context", ""}, "--context: it is empty"},
		{[]string{"--context", "shop", "--context", ""}, "--context: it is empty"},
	} {
		result := jetpullRun(t, append([]string{"console"}, tt.args...)...)
		require.Equal(t, 2, result.code, tt.args)
		require.Contains(t, result.err, tt.want)
	}
}
