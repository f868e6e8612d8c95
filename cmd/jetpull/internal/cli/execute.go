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

// Execute runs one command line of root, tells its error and returns its exit code. Explain is the error's text for a
// reader; with *asJSON the error is printed as JSON.
func Execute(ctx context.Context, root *cobra.Command, args []string, s Streams, asJSON *bool, explain func(*cobra.Command, error) string) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if refused, ok := errors.AsType[refusal](err); ok {
			return refused.error
		}
		// The flag is that of a command whose name has a slip.
		path := strings.Fields(cmd.CommandPath())
		for _, word := range args {
			if cmd.HasSubCommands() && !slices.Contains(path, word) && len(suggestions(cmd, word)) > 0 {
				return unknown(cmd, word)
			}
		}
		return err
	})
	root.SetArgs(append([]string{}, args...)) // for nil cobra takes the process's own
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	began := false
	prepare(root, &began)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitDone
	}
	if !began {
		err = Usage(err)
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

// prepare makes the commands below root name an unknown command, with those that it could be; cobra's own would print a help
// text. An error before began is set is one of the command line.
func prepare(root *cobra.Command, began *bool) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	each(root, func(cmd *cobra.Command) {
		if check := cmd.Args; cmd.HasSubCommands() {
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if len(args) > 0 && (check == nil || check(cmd, args) != nil) {
					return unknown(cmd, args[0])
				}
				return nil
			}
		}
		if !cmd.Runnable() || cmd.Name() == "completion" {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		if cmd.Name() == "help" {
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return unknown(found, rest[0])
				}
				return nil
			}
		}
		if run := cmd.RunE; run != nil {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				*began = true
				return run(cmd, args)
			}
		}
	})
}

func each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, sub := range cmd.Commands() {
		each(sub, do)
	}
}

// unknown is the error of a name that no command below cmd has.
func unknown(cmd *cobra.Command, name string) error {
	text := fmt.Sprintf("unknown command %q for %q", name, cmd.CommandPath())
	if near := suggestions(cmd, name); len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(text)
}

// suggestions are the names of commands below cmd that differ little from name, and are not it.
func suggestions(cmd *cobra.Command, name string) []string {
	cmd.SuggestionsMinimumDistance = 2
	near := cmd.SuggestionsFor(name)
	if slices.Contains(near, name) {
		return nil
	}
	return near
}

// Warn reports a problem that does not end the command.
func Warn(errOut io.Writer, asJSON bool, text string) {
	if asJSON {
		_ = WriteJSON(errOut, struct {
			Problem string `json:"problem"`
		}{text})
		return
	}
	Tell(errOut, "jetpull: %s\n", text)
}
