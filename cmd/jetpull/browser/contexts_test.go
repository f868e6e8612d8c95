package test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consolecmd"
	"github.com/jetpull/jetpull/test/servertest"
)

// An operator signs in once for the accounts of several contexts. The header leads from one to the other, an action in one leaves the others as they
// are, and an alert names the context.
func TestContextsOfOneConsole(t *testing.T) {
	startBrowser(t)
	alerts := make(chan map[string]string, 100)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var event map[string]string
		if json.NewDecoder(r.Body).Decode(&event) == nil {
			alerts <- event
		}
	}))
	t.Cleanup(target.Close)
	t.Setenv("JETPULL_CONSOLE_ALERT_SECRET", "whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 24)))
	args := []string{"--listen", "127.0.0.1:0", "--console-token", "ada=secret", "--console-alert-url", target.URL}
	accounts, dir := map[string]jetstream.JetStream{}, t.TempDir()
	for _, name := range []string{"shop", "bank"} {
		srv := servertest.RunServer(t)
		js := srv.JetStream(t, srv.Connect(t))
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
		require.NoError(t, err)
		_, err = js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{Durable: "billing", AckPolicy: jetstream.AckExplicitPolicy})
		require.NoError(t, err)
		file := filepath.Join(dir, name+".json")
		require.NoError(t, os.WriteFile(file, []byte(`{"url":"`+srv.URL()+`"}`), 0o600))
		accounts[name], args = js, append(args, "--context", file)
	}
	_, err := accounts["bank"].Publish(t.Context(), "orders", nil) // its consumer has no client, and is red
	require.NoError(t, err)

	g := &client.Globals{}
	cmd := consolecmd.New(g)
	g.Register(cmd)
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	cmd.SetArgs(args)
	cmd.SetOut(in)
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = in.CloseWithError(io.EOF)
		ended <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	base, ok := strings.CutPrefix(strings.TrimSpace(line), "console: listening on ")
	require.True(t, ok, line)

	b := openTab(t, base, wide)
	b.open("")
	b.eventually("Sign in")
	b.typeInto("input[name=token]", "secret")
	b.press("Sign in")
	b.eventually("1 consumer work", "Sign out")
	require.Equal(t, base+"c/shop/overview", b.url())
	bank := func(page string) {
		b.click(`nav.contexts a[href="../bank/"]`)
		b.eventually("No client pulls, and 1 message waits")
		require.Equal(t, base+"c/bank/overview", b.url(), "without another sign-in")
		b.open("c/bank/" + page)
	}
	bank("overview")
	b.eventually("No client pulls, and 1 message waits")
	b.audit()
	b.shoot("contexts")
	b.click(`nav.contexts a[href="../shop/"]`)
	b.gone("No client pulls")

	b.open("c/shop/consumer?stream=ORDERS&name=billing")
	b.press("Pause")
	b.eventually("Done.", "Paused, and resumes in ")
	for name, want := range map[string]bool{"shop": true, "bank": false} {
		found, err := accounts[name].Consumer(t.Context(), "ORDERS", "billing")
		require.NoError(t, err)
		require.Equal(t, want, found.CachedInfo().Paused, name)
	}
	b.open("c/shop/log")
	b.eventually("ada", "ORDERS/billing")
	bank("log")
	b.eventually("Log of actions")
	require.NotContains(t, b.text(), "ORDERS/billing")

	var event map[string]string
	select {
	case event = <-alerts:
	case <-time.After(3 * waitMost):
		t.Fatal("no alert")
	}
	require.Equal(t, []string{"console.red", "ORDERS/billing", "bank"}, []string{event["type"], event["object"], event["environment"]})
	b.click(".who button")
	b.eventually("Sign in")
	b.open("c/shop/overview")
	b.eventually("Sign in")
	cancel()
	require.NoError(t, <-ended)
}
