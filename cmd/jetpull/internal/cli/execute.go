package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Execute runs one command line of root, tells its error and returns its exit code. Explain is the error's text for a
// reader; with *asJSON the error is printed as JSON.
func Execute(ctx context.Context, root *cobra.Command, args []string, s Streams, asJSON *bool, explain func(*cobra.Command, error) string) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })
	root.SetArgs(append([]string{}, args...)) // for nil cobra takes the process's own
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	refuseUnknown(root)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitDone
	}
	code := ExitCode(ctx, err)
	text := explain(cmd, err)
	if *asJSON {
		_ = WriteJSON(s.Err, struct {
			Error string `json:"error"`
			Code  int    `json:"code"`
		}{text, code})
		return code
	}
	Tell(s.Err, "jetpull: %s\n", text)
	if code == ExitUsage {
		Tell(s.Err, "See: %s --help\n", cmd.CommandPath())
	}
	return code
}

// refuseUnknown makes cobra's own commands refuse names that no command has, for which they print a help text.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return Usage(fmt.Errorf("there is no command %q", args))
				}
				return nil
			}
		case "completion":
			cmd.Args, cmd.RunE = UsageArgs(cobra.NoArgs), func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}
