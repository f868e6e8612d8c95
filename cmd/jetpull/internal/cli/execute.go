// Package cli contains the shared parts of all jetpull commands: exit codes, flags, usage errors and output.
package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/service/progress"
)

// The exit codes. The help of the root command documents them.
const (
	ExitDone        = 0
	ExitError       = 1
	ExitUsage       = 2
	ExitNoMessages  = 3
	ExitTimeout     = 4
	ExitFailed      = 5
	ExitInterrupted = 130
	ExitClosed      = 141 // the same as for a program that SIGPIPE ends
)

// ExitCodesHelp is the part of the root command's help that documents the exit codes.
const ExitCodesHelp = `Exit codes:
  0    done
  1    error
  2    the command line is invalid, or the consumer does not support the request
  3    no messages
  4    timeout: the server or a worker did not respond, or too few messages arrived in time
  5    done, but a message was not acknowledged, because its command failed
  130  interrupted before the work was done
  141  the reader of standard output closed it before the end, such as head`

// coded is an error with an exit code.
type coded struct {
	error
	code int
}

// Unwrap returns the error without its exit code.
func (e coded) Unwrap() error { return e.error }

// Usage returns err as the error of an invalid command line.
func Usage(err error) error { return coded{err, ExitUsage} }

// Failed returns the error of a completed run in which messages failed.
func Failed(format string, args ...any) error { return coded{fmt.Errorf(format, args...), ExitFailed} }

// Late returns the error of a command that got no response in time.
func Late(format string, args ...any) error { return coded{fmt.Errorf(format, args...), ExitTimeout} }

var (
	// ErrShort is returned by a run that got fewer messages than requested.
	ErrShort = errors.New("fewer messages than asked for")
	// ErrInterrupted is returned by a bounded run that a signal stopped.
	ErrInterrupted = errors.New("interrupted")
)

// outputClosed reports whether a write to standard output failed because its reader is gone. A broken connection has an error of another type.
func outputClosed(err error) bool {
	written, ok := errors.AsType[*fs.PathError](err)
	return ok && written.Path == os.Stdout.Name() && errors.Is(written, syscall.EPIPE)
}

// ExitCode returns the exit code of a command that ended with err.
func ExitCode(ctx context.Context, err error) int {
	own, _ := errors.AsType[coded](err)
	switch {
	case err == nil:
		return ExitDone
	case own.code == ExitUsage, errors.Is(err, jetpull.ErrInvalidOption), errors.Is(err, feed.ErrInvalid):
		return ExitUsage
	case outputClosed(err):
		return ExitClosed
	case errors.Is(err, ErrInterrupted), errors.Is(err, jetpull.ErrDrainTimeout), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return ExitInterrupted
	case own.code != 0:
		return own.code
	case errors.Is(err, jetpull.ErrNoMessages):
		return ExitNoMessages
	case errors.Is(err, jetpull.ErrTimeout), errors.Is(err, ErrShort), errors.Is(err, context.DeadlineExceeded):
		return ExitTimeout
	}
	return ExitError
}

// Execute runs one command line of root, prints its error and returns its exit code. explain returns the error's text for
// users. With --json, the error is printed as JSON.
func Execute(ctx context.Context, root *cobra.Command, args []string, explain func(*cobra.Command, error) string) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(refused)
	root.SetArgs(append([]string{}, args...)) // not nil, for which cobra uses the process's arguments
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	helped, began := help(root), false // an error before a command begins is an error of the command line
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
		return code // the output was enough for the user
	}
	text, errOut := explain(cmd, err), root.ErrOrStderr()
	if JSON(cmd) || asksForJSON(args) {
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

// asksForJSON reports whether a command line has --json. An invalid flag ends the parsing of the flags, so that a later --json is not set.
func asksForJSON(args []string) bool {
	i := slices.IndexFunc(args, func(arg string) bool { return arg == "--json" || arg == "-j" || arg == "--" })
	return i >= 0 && args[i] != "--" // a command of consume follows that
}

// prepare makes cmd and its subcommands check their arguments, call begin before they run, and show their help if they have nothing else to do.
func prepare(cmd *cobra.Command, begin func()) {
	if cmd.Args == nil && cmd.Name() != "help" { // the arguments of help are the names of a command
		cmd.Args = Arguments
	}
	complete(cmd.PersistentFlags())
	complete(cmd.Flags())
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

// unknown returns an error if args contain, before the first flag, the name of a command that does not exist. The error suggests similar
// commands. Cobra itself would print a help text, or reject a flag of the intended command.
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

const helpWidth = 100

// help wraps the help of root and its subcommands at the terminal's width. failed returns the error of writing it.
func help(root *cobra.Command) (failed func() error) {
	show := root.HelpFunc()
	var err error
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out, width := cmd.OutOrStdout(), helpWidth
		if columns := progress.Width(out); columns > 0 {
			width = min(width, columns)
		}
		var text bytes.Buffer
		cmd.SetOut(&text)
		show(cmd, args)
		cmd.SetOut(out)
		_, err = io.WriteString(out, wrap(text.String(), width))
	})
	return func() error { return err }
}

// before matches the part of a line before its text: the indentation, and the name and type of a flag.
var before = regexp.MustCompile(`^ *(?:(?:-\w, )?--[\w-]+(?: \S+)? {2,})?`)

// wrap breaks lines at spaces, and indents the continuation to the line's text. It does not change examples, because users copy them.
func wrap(text string, width int) string {
	var b strings.Builder
	examples := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, " ") {
			examples = line == "Examples:" || examples && line == ""
		}
		head := before.FindString(line)
		indent := strings.Repeat(" ", utf8.RuneCountInString(head))
		if len(indent) > width/2 {
			indent, head = "          ", ""
		}
		for !examples && utf8.RuneCountInString(line) > width {
			runes := []rune(line)
			at := strings.LastIndex(string(runes[:width+1]), " ")
			if at <= max(len(head), len(indent)) {
				break // a single long word
			}
			b.WriteString(strings.TrimRight(line[:at], " ") + "\n")
			line, head = indent+strings.TrimLeft(line[at:], " "), ""
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
