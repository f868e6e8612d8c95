// Command jetpull works with JetStream pull consumers from a shell. It fetches messages, runs a command for each message, watches a
// consumer, and moves a pin. It also runs the broker, the relay, the feed and the console.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/child"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consolecmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consumecmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/dlqcmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/feedcmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/infocmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/publish"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/pulling"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/serve"
)

func main() {
	// If the reader of stdout goes away, the write fails, and SIGPIPE does not end the process. Messages that were not printed can then be
	// handed back to the server.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		// The first signal stops the command gracefully, the second at once.
		<-signals
		cancel()
		<-signals
		child.Leave()
		os.Exit(cli.ExitInterrupted)
	}()
	os.Exit(execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	root := newRootCommand()
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	explain := func(cmd *cobra.Command, err error) string { return cli.Plain(err) + advice(cmd, err) }
	return cli.Execute(ctx, root, brokercmd.WithOriginalFlags(root, args), explain)
}

// advice returns what to do about an error of a command on a consumer, or "".
func advice(cmd *cobra.Command, err error) string {
	stream := cmd.Flags().Arg(0)
	if stream == "" {
		return ""
	}
	see := "see what there is with: "
	if cmd.Flags().Lookup("create") != nil {
		see = "create it with --create SUBJECTS, or " + see
	}
	switch {
	case errors.Is(err, jetpull.ErrConsumerDeleted):
		return "; it was deleted while it was used: create it again, and restart the command"
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return "; " + see + "jetpull streams ls"
	case errors.Is(err, jetstream.ErrBucketNotFound):
		return "; no program has opened a set of this name"
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return "; " + see + "jetpull consumers ls " + stream
	}
	return ""
}

// tag is the release's tag. The linker sets it.
var tag string

// version returns the tag, or else the module's version. The go command generates a version for an untagged commit.
func version() string {
	if tag != "" {
		return tag
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

// licenses has the licence notices of all modules in the command. "make licenses" generates it.
//
//go:embed internal/licenses/licenses.txt.gz
var licenses []byte

func newRootCommand() *cobra.Command {
	g, root := &client.Globals{}, &cobra.Command{
		Use:   "jetpull",
		Short: "Handle messages of JetStream pull consumers, and run the broker, the relay, the feed and the console",
		Long: `jetpull handles messages of NATS JetStream pull consumers. It also runs a webhook
broker, a webhook relay, a feed of work on a database, and a web console.

` + client.TargetHelp + `

` + cli.ExitCodesHelp,
		Version: version(),
	}
	root.SetVersionTemplate("jetpull {{.Version}}\n")
	for _, cmd := range append([]*cobra.Command{
		pulling.NewFetch(g), consumecmd.New(g), publish.New(g), dlqcmd.New(g), consolecmd.New(g), consolecmd.NewExporter(g),
	}, infocmd.Commands(g)...) {
		for _, sub := range append(cmd.Commands(), cmd) {
			if !sub.HasSubCommands() {
				g.Register(sub)
			}
		}
		root.AddCommand(cmd)
	}
	root.AddCommand(serve.NewServer(), brokercmd.New(), relaycmd.New(), feedcmd.New(), &cobra.Command{
		Use: "licenses", Short: "Print the licences of the software that jetpull contains",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := gzip.NewReader(bytes.NewReader(licenses))
			if err != nil {
				return err
			}
			_, err = io.Copy(cmd.OutOrStdout(), text)
			return err
		},
	}, &cobra.Command{
		Use: "version", Short: "Print the version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "jetpull", version())
			return err
		},
	})
	return root
}
