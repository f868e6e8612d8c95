package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
)

// Execute runs one command line of root, prints its error and returns its exit code. Explain is the error's text for a
// reader; with *asJSON the error is printed as JSON.
func Execute(ctx context.Context, root *cobra.Command, args []string, asJSON *bool, explain func(*cobra.Command, error) string) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(refused)
	root.SetArgs(append([]string{}, args...)) // for nil cobra takes the process's own
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	helped, began := help(root), false // before a command has begun, an error is one of the command line
	prepare(root, func() { began = true })
	cmd, err := unknown(root, args)
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	if err == nil {
		err = helped()
	}
	if err == nil {
		return ExitDone
	}
	if write, ok := errors.AsType[*fs.PathError](err); !began && (!ok || write.Op != "write") {
		err = Usage(err)
	}
	code := ExitCode(ctx, err)
	if code == ExitClosed {
		return code // the user has seen enough
	}
	text, errOut := explain(cmd, err), root.ErrOrStderr()
	if *asJSON {
		_ = WriteJSON(errOut, struct {
			Error string `json:"error"`
			Code  int    `json:"code"`
		}{text, code})
		return code
	}
	Notice(errOut, "jetpull: %s\n", text)
	if code == ExitUsage {
		Notice(errOut, "See: %s --help\n", cmd.CommandPath())
	}
	return code
}

// prepare has a command and those below it check their arguments, show their help if they do nothing else, and call begin before they run.
func prepare(cmd *cobra.Command, begin func()) {
	if cmd.Args == nil && cmd.Name() != "help" { // its arguments are the names of a command
		cmd.Args = Arguments
	}
	allowDays(cmd.PersistentFlags())
	allowDays(cmd.Flags())
	run := cmd.RunE
	if run == nil && cmd.Run == nil {
		run = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			begin()
			return run(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		prepare(sub, begin)
	}
}

// unknown looks for the name of a command that does not exist, before the first flag of args. Its error names the commands that
// it could be. Cobra would print a help text for it, or refuse a flag of the command that was meant.
func unknown(root *cobra.Command, args []string) (*cobra.Command, error) {
	if len(args) > 0 && args[0] == "help" {
		args = args[1:]
	}
	cmd, rest, _ := root.Find(args)
	if len(rest) == 0 || !cmd.HasSubCommands() || strings.HasPrefix(rest[0], "-") || strings.HasPrefix(rest[0], cobra.ShellCompRequestCmd) {
		return cmd, nil
	}
	cmd.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("unknown command %q for %q", rest[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(rest[0]); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return cmd, errors.New(text)
}
