package main

import (
	"context"
	"io"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// idle is a standard input that is open, and of which nobody writes. It says when it is read.
type idle struct{ read chan struct{} }

// Read never returns.
func (i idle) Read([]byte) (int, error) {
	close(i.read)
	select {}
}

// A command that waits for its standard input ends at once when it is interrupted.
func TestInterruptedWhileItReadsStandardInput(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	for _, args := range [][]string{
		{"publish", "s.a", "--nats", f.url},
		{"publish", "s.a", "--lines", "--nats", f.url},
		{"publish", "s.a", "--null", "--nats", f.url},
		{"feed", "add", "p", "--db", "sqlite:" + filepath.Join(t.TempDir(), "feed.db")},
		{"relay", "receivers", "put", "ci", "--file", "-"},
		{"relay", "send", "--source", "a", "--id", "m-1", "--receiver", "ci"},
		{"broker", "channels", "put", "orders", "--file", "-"},
	} {
		in := idle{make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		var out, errOut buffer
		code := make(chan int)
		go func() { code <- execute(ctx, args, in, &out, &errOut) }()
		select {
		case <-in.read:
		case got := <-code:
			require.FailNow(t, "it did not read", "%q: %d %s", args, got, errOut.String())
		}
		cancel()
		require.Equal(t, cli.ExitInterrupted, <-code, "%q: %s", args, errOut.String())
		require.Contains(t, errOut.String(), "interrupted")
	}
}

// An error of standard input ends the command.
func TestStandardInputThatFails(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	for _, args := range [][]string{{"publish", "s.a"}, {"publish", "s.a", "--lines"}} {
		in, write := io.Pipe()
		require.NoError(t, write.CloseWithError(errGone))
		r := jetpullRunWith(t, in, append(args, "--nats", f.url)...)
		require.Equal(t, cli.ExitError, r.code, r.err)
		require.Contains(t, r.err, errGone.Error())
	}
}
