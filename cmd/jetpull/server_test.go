package main

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// The server runs until it is interrupted, and other commands use it.
func TestServer(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errOut buffer
	code := make(chan int, 1)
	dir := t.TempDir()
	go func() {
		code <- execute(ctx, []string{"server", "--port", "0", "--dir", dir}, strings.NewReader(""), &out, &errOut)
	}()
	address := regexp.MustCompile(`nats://127\.0\.0\.1:\d+`)
	require.Eventually(t, func() bool { return address.MatchString(out.String()) }, time.Minute, time.Millisecond)
	url := address.FindString(out.String())
	require.Equal(t, "server: listening on "+url+", store in "+dir+". It syncs to disk every 2s: a power failure loses the messages since the "+
		"last sync.\n", out.String())
	r := jetpullRun(t, "publish", "--server", url, "orders.new", "two", "--create", "ORDERS")
	require.Equal(t, cli.ExitDone, r.code, r.err)

	port := url[strings.LastIndex(url, ":")+1:]
	r = jetpullRun(t, "server", "--port", port, "--dir", t.TempDir())
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, "choose another --port")
	r = jetpullRun(t, "server", "--sync", "sometimes")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "neither each nor an interval of at least 10ms")
	r = jetpullRun(t, "publish", "--server", url, "orders.new", "two", "--sync", "each")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "--sync needs --embedded")
	r = jetpullRun(t, "server", "--port", "70000")
	require.Equal(t, cli.ExitUsage, r.code)

	stop()
	require.Equal(t, cli.ExitDone, <-code, errOut.String())
	_, err := nats.Connect(url)
	require.Error(t, err)
}
