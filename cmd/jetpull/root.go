package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consumecmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/dlqcmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/feedcmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/fetchcmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/infocmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/publish"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd"
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
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "jetpull", version())
			return err
		},
	}
}

func newRootCommand(g *client.Globals) *cobra.Command {
	root := &cobra.Command{
		Use:   "jetpull",
		Short: "Turn JetStream pull consumers into finished work",
		Long: `jetpull works with the pull consumers of NATS JetStream.

` + client.TargetHelp + `

` + cli.ExitCodesHelp,
		Args:    cobra.NoArgs,
		Version: version(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("jetpull {{.Version}}\n")
	for _, cmd := range []*cobra.Command{
		fetchcmd.New(g), consumecmd.New(g), publish.New(g), infocmd.New(g), infocmd.NewUnpin(g), dlqcmd.New(g),
	} {
		for _, sub := range append(cmd.Commands(), cmd) {
			if !sub.HasSubCommands() {
				g.Register(sub.Flags())
			}
		}
		root.AddCommand(cmd)
	}
	root.AddCommand(brokercmd.New(), relaycmd.New(&g.JSON), feedcmd.New())
	root.AddCommand(newVersionCommand())
	return root
}
