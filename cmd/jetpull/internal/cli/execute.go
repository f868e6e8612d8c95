package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Execute runs one command line of root, prints its error and returns its exit code. Explain is the error's text for a
// reader; with *asJSON the error is printed as JSON.
func Execute(ctx context.Context, root *cobra.Command, args []string, s Streams, asJSON *bool, explain func(*cobra.Command, error) string) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if refused, ok := errors.AsType[refusal](err); ok {
			return refused.error
		}
		return err
	})
	root.SetArgs(append([]string{}, args...)) // for nil cobra takes the process's own
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	began := false // before that, an error is one of the command line
	prepare(root, func() { began = true })
	cmd, err := unknown(root, args)
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	if err == nil {
		return ExitDone
	}
	if !began {
		err = Usage(err)
	}
	code := ExitCode(ctx, err)
	if code == ExitClosed {
		return code // the user has seen enough
	}
	text := explain(cmd, err)
	if *asJSON {
		_ = WriteJSON(s.Err, struct {
			Error string `json:"error"`
			Code  int    `json:"code"`
		}{text, code})
		return code
	}
	Notice(s.Err, "jetpull: %s\n", text)
	if code == ExitUsage {
		Notice(s.Err, "See: %s --help\n", cmd.CommandPath())
	}
	return code
}

// prepare has a command and those below it check their arguments, show their help if they do nothing else, and call begin before they run.
func prepare(cmd *cobra.Command, begin func()) {
	if cmd.Args == nil {
		cmd.Args = Arguments
	}
	run := cmd.RunE
	if run == nil {
		run = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		begin()
		return run(cmd, args)
	}
	for _, sub := range cmd.Commands() {
		prepare(sub, begin)
	}
}

// unknown looks for the name of a command that does not exist, before the first flag of args. Its error names the commands that
// it could be. Cobra would print a help text for it, or refuse a flag of the command that was meant.
func unknown(root *cobra.Command, args []string) (*cobra.Command, error) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if len(args) > 0 && args[0] == "help" {
		args = args[1:]
	}
	cmd := root
	for _, name := range args {
		if !cmd.HasSubCommands() || strings.HasPrefix(name, "-") || strings.HasPrefix(name, cobra.ShellCompRequestCmd) {
			break
		}
		subs := cmd.Commands()
		i := slices.IndexFunc(subs, func(sub *cobra.Command) bool { return sub.Name() == name || sub.HasAlias(name) })
		if i < 0 {
			cmd.SuggestionsMinimumDistance = 2
			text := fmt.Sprintf("unknown command %q for %q", name, cmd.CommandPath())
			if near := cmd.SuggestionsFor(name); len(near) > 0 {
				text += "; did you mean " + strings.Join(near, " or ") + "?"
			}
			return cmd, errors.New(text)
		}
		cmd = subs[i]
	}
	return cmd, nil
}
