package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// globals are the flags that all clients of a server have.
type globals struct {
	target target
	json   bool
	quiet  bool
}

func newRootCommand(g *globals) *cobra.Command {
	root := &cobra.Command{
		Use:   "jetpull",
		Short: "Turn JetStream pull consumers into finished work",
		Long: `jetpull works with the pull consumers of NATS JetStream.

` + targetHelp + `

` + cli.ExitCodesHelp,
		Args: cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usage(err) })
	for _, cmd := range []*cobra.Command{
		newFetchCommand(g), newConsumeCommand(g), newInfoCommand(g), newUnpinCommand(g), newBenchCommand(g),
	} {
		g.register(cmd.Flags())
		root.AddCommand(cmd)
	}
	for _, cmd := range systemCommands(g) {
		cmd.Args = cli.UsageArgs(cmd.Args)
		root.AddCommand(cmd)
	}
	return root
}

// register adds the flags to a command that is a client of a server. The systems
// have their own: a flag that a command would ignore is not there.
func (g *globals) register(flags *pflag.FlagSet) {
	flags.StringVar(&g.target.url, "nats", "", "`URL` of the server; may be a list with commas")
	flags.StringVar(&g.target.context, "context", "", "`NAME` of a context of the nats command, or the absolute path of its file")
	flags.StringVar(&g.target.embedded, "embedded", "", "run a server in this process, with its store in `DIR`")
	flags.IntVar(&g.target.port, "embedded-port", 0, "`PORT` of that server on 127.0.0.1; 0 for any that is free")
	flags.StringVar(&g.target.creds, "creds", "", "`FILE` with user credentials")
	flags.StringVar(&g.target.domain, "domain", "", "JetStream `DOMAIN`")
	flags.DurationVar(&g.target.timeout, "timeout", 5*time.Second, "limit for connecting and for a request")
	flags.BoolVar(&g.json, "json", false, "print JSON, one value per line; errors too")
	flags.BoolVarP(&g.quiet, "quiet", "q", false, "print no progress and no summary on stderr; problems are printed all the same")
}

// streamAndConsumer wants exactly the two names.
func streamAndConsumer(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return cli.Usage(fmt.Errorf("%s wants the names of a stream and a consumer, not %d arguments %q", cmd.Name(), len(args), args))
	}
	return cmp.Or(checkName("stream", args[0]), checkName("consumer", args[1]))
}
