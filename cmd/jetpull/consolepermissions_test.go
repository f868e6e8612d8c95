package main

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/partition"
	"github.com/jetpull/jetpull/test/servertest"
)

// consoleWith runs a console of a user with permissions on a server with something to show, and returns its URL and its log.
func consoleWith(t *testing.T, permissions string, args ...string) (base string, log *servertest.Log) {
	t.Helper()
	srv := servertest.RunServer(t, servertest.WithConfig(servertest.PartConfig(permissions)))
	fillForConsole(t, srv.JetStream(t, srv.Connect(t, nats.UserInfo("all", "pw"))))
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	log = &servertest.Log{}
	code := make(chan int, 1)
	go func() {
		args := append([]string{"console", "--nats", srv.PartURL(), "--listen", "127.0.0.1:0"}, args...)
		code <- execute(ctx, args, strings.NewReader(""), in, log)
	}()
	t.Cleanup(func() {
		cancel()
		<-code // not 0 if an action still waits for a response that the server refuses
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return strings.TrimPrefix(strings.TrimSpace(line), "console: listening on "), log
}

// fillForConsole creates what the console has pages for. A worker with a name handles messages of ORDERS until the test ends.
func fillForConsole(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	transform := partition.Transform(1, "parted.*")
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "ORDERS", Subjects: []string{"orders.>"}},
		{Name: "DEAD", Subjects: []string{"dead.>"}, AllowDirect: true},
		{Name: "PARTED", Subjects: []string{"parted.*"}, SubjectTransform: &transform},
	} {
		_, err := js.CreateStream(t.Context(), cfg)
		require.NoError(t, err)
	}
	_, err := partition.Open(t.Context(), js, "PARTED", partition.Config{Name: "billing", Partitions: 1, Subject: "parted.{partition}.*"})
	require.NoError(t, err)
	_, err = js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	letter := nats.Header{jetpull.HeaderDeadSubject: {"orders.new"}, jetpull.HeaderDeadStream: {"ORDERS"}}
	for _, m := range []*nats.Msg{{Subject: "orders.new"}, {Subject: "dead.orders", Header: letter}} {
		_, err := js.PublishMsg(t.Context(), m)
		require.NoError(t, err)
	}
	sub, err := jetpull.Subscribe(t.Context(), js, "ORDERS", "worker", jetpull.Logger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	handling, ended := make(chan struct{}, 100), make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		ended <- sub.Consume(ctx, func(ctx context.Context, _ *jetpull.Msg) error {
			handling <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}, jetpull.Named("w"), jetpull.DrainTimeout(time.Millisecond))
	}()
	<-handling
	t.Cleanup(func() {
		stop()
		<-ended
	})
}

// look reads the pages of a console, and returns the status of each that fails.
func look(ctx context.Context, base string) (failed []string) {
	for _, path := range []string{
		"overview", "consumers", "consumer?stream=ORDERS&name=worker", "streams", "messages?stream=ORDERS", "messages?stream=DEAD",
		"message?stream=ORDERS&seq=1", "deadletters?stream=DEAD", "message?stream=DEAD&seq=1", "sets", "set?name=billing",
	} {
		failed = append(failed, send(ctx, http.MethodGet, base+path, nil, http.StatusOK)...)
	}
	return failed
}

// act takes actions of a console, and returns the status of each that fails.
func act(ctx context.Context, base string) (failed []string) {
	for _, one := range []struct {
		path string
		form url.Values
	}{
		{"consumer?stream=ORDERS&name=worker", url.Values{"do": {"cancel"}, "seq": {"1"}}},
		{"message?stream=DEAD&seq=1", url.Values{"do": {"requeue"}, "subject": {"orders.new"}}},
		{"consumer?stream=ORDERS&name=worker", url.Values{"do": {"pause"}, "for": {"1h"}}},
	} {
		failed = append(failed, send(ctx, http.MethodPost, base+one.path, one.form, http.StatusSeeOther)...)
	}
	return failed
}

func send(ctx context.Context, method, address string, form url.Values, want int) (failed []string) {
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(form.Encode()))
	if err != nil {
		return []string{err.Error()}
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return []string{err.Error()}
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || answer.StatusCode != want {
		failed = []string{method + " " + address + ": " + answer.Status + ": " + string(text)}
	}
	return failed
}

// A console works with each block of docs/permissions.md, and with each line taken out the log names its subject.
func TestPermissionsOfTheConsole(t *testing.T) {
	for heading, console := range map[string]struct {
		args []string
		use  func(ctx context.Context, base string) (failed []string)
	}{
		"A console that only looks": {[]string{"--console-state", ""}, look},
		"Console": {nil, func(ctx context.Context, base string) []string {
			return append(look(ctx, base), act(ctx, base)...)
		}},
	} {
		block := servertest.PermissionsOf(t, "../..", heading)
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			base, log := consoleWith(t, block, console.args...)
			require.Empty(t, console.use(t.Context(), base))
			require.NotContains(t, log.String(), "Permissions Violation", "it needs more")
		})
		for missing, rest := range servertest.WithoutEach(block) {
			t.Run(heading+" without "+missing, func(t *testing.T) {
				t.Parallel()
				base, log := consoleWith(t, rest, console.args...)
				ctx, end := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					console.use(ctx, base)
				}()
				named := ` to \"` + servertest.Literal(missing)
				require.Eventually(t, func() bool {
					return strings.Contains(log.String(), "Permissions Violation") && strings.Contains(log.String(), named)
				}, time.Minute, 10*time.Millisecond, "the log does not name it")
				end()
				<-ended
			})
		}
	}
}
