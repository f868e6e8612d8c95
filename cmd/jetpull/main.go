// Command jetpull works with JetStream pull consumers from a shell: it fetches
// messages, runs a command for each, watches a consumer, moves a pin, and runs
// the systems that are built on the library.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/child"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consumecmd/run"
)

func main() {
	// A reader of stdout that goes away is an error of that write, not the end
	// of the process: what was not printed is then handed back to the server.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		// The first signal ends the work in good order, the second at once.
		<-signals
		cancel()
		<-signals
		child.Leave()
		run.LastWords()
		os.Exit(cli.ExitInterrupted)
	}()
	os.Exit(execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	g := &client.Globals{}
	explain := func(cmd *cobra.Command, err error) string { return cli.Plain(err) + advice(cmd, err) }
	return cli.Execute(ctx, newRootCommand(g), brokercmd.WithOriginalFlags(args), cli.Streams{In: in, Out: out, Err: errOut}, &g.JSON, explain)
}

// advice is what to do about an error of a command that works on a consumer, or "".
func advice(cmd *cobra.Command, err error) string {
	stream := cmd.Flags().Arg(0)
	if stream == "" {
		return ""
	}
	see := "see what there is with: "
	if cmd.Flags().Lookup("create") != nil {
		see = "make it with --create SUBJECTS, or " + see
	}
	switch {
	case errors.Is(err, jetpull.ErrConsumerDeleted):
		return "; it was deleted while it was used: make it again, and start anew"
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return "; " + see + "nats stream ls"
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return "; " + see + "nats consumer ls " + stream
	}
	return ""
}
