package main

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// version is what the build says of itself: the module's version, or the revision.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "devel " + s.Value
		}
	}
	return "devel"
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cli.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "jetpull", version())
			return err
		},
	}
}

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
		Args:    cli.UsageArgs(cobra.NoArgs),
		Version: version(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("jetpull {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usage(err) })
	for _, cmd := range []*cobra.Command{
		newFetchCommand(g), newConsumeCommand(g), newPublishCommand(g), newInfoCommand(g), newUnpinCommand(g), newDLQCommand(g), newBenchCommand(g),
	} {
		if cmd.HasSubCommands() {
			for _, sub := range cmd.Commands() {
				g.register(sub.Flags())
			}
			root.AddCommand(cmd)
			continue
		}
		g.register(cmd.Flags())
		root.AddCommand(cmd)
	}
	for _, cmd := range systemCommands(g) {
		cmd.Args = cli.UsageArgs(cmd.Args)
		root.AddCommand(cmd)
	}
	root.AddCommand(newVersionCommand())
	return root
}

// register adds the flags to a command that is a client of a server, with the names that the nats command has for them. The
// systems have their own: a flag that a command would ignore is not there.
func (g *globals) register(flags *pflag.FlagSet) {
	t := &g.target
	flags.SetNormalizeFunc(otherNames)
	flags.StringVarP(&t.url, "server", "s", "", "`URL` of the server; may be a list with commas (NATS_URL; also --nats)")
	flags.StringVar(&t.context, "context", "", "`NAME` of a context of the nats command, or the absolute path of its file (NATS_CONTEXT)")
	flags.StringVar(&t.embedded, "embedded", "", "run a server in this process, with its store in `DIR`")
	flags.IntVar(&t.port, "embedded-port", 0, "`PORT` of that server on 127.0.0.1; 0 for any that is free")
	t.login.register(flags)
	flags.StringVar(&t.domain, "js-domain", "", "JetStream `DOMAIN` (also --domain)")
	flags.StringVar(&t.prefix, "js-api-prefix", "", "`PREFIX` of the JetStream API")
	flags.DurationVar(&t.timeout, "timeout", defaultTimeout, "limit for connecting and for a request (NATS_TIMEOUT)")
	flags.BoolVarP(&g.json, "json", "j", false, "print JSON, one value per line; errors too")
	flags.BoolVarP(&g.quiet, "quiet", "q", false, "print no progress and no summary on stderr; problems are printed all the same")
}

// defaultTimeout is that of the nats command.
const defaultTimeout = 5 * time.Second

// otherNames lets the flags of the systems be used here too.
func otherNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "nats":
		name = "server"
	case "domain":
		name = "js-domain"
	}
	return pflag.NormalizedName(name)
}

// streamAndConsumer wants exactly the two names.
func streamAndConsumer(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return cli.Usage(fmt.Errorf("%s wants the names of a stream and a consumer, not %d arguments %q", cmd.Name(), len(args), args))
	}
	return cmp.Or(checkName("stream", args[0]), checkName("consumer", args[1]))
}
