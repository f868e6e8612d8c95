// Package cli has the shared parts of all commands of jetpull: exit codes, usage errors, output.
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
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/service/progress"
)

// The exit codes, which the help of the root command documents.
const (
	ExitDone        = 0
	ExitError       = 1
	ExitUsage       = 2
	ExitNoMessages  = 3
	ExitTimeout     = 4
	ExitFailed      = 5
	ExitInterrupted = 130
	ExitClosed      = 141 // as of a program that SIGPIPE ends
)

// ExitCodesHelp is the part of the root command's help that documents them.
const ExitCodesHelp = `Exit codes:
  0    done
  1    error
  2    the command line is invalid, or the consumer does not support the request
  3    no messages
  4    timeout: the server or a worker did not respond, or too few messages arrived in time
  5    done, but a message was not acknowledged, because its command failed
  130  interrupted before the work was done
  141  the reader of standard output closed it before the end, such as head`

// coded is an error with the exit code of a command that ends with it.
type coded struct {
	error
	code int
}

// Unwrap returns what is wrong.
func (e coded) Unwrap() error { return e.error }

// Usage makes err that of a command line that cannot be carried out.
func Usage(err error) error { return coded{err, ExitUsage} }

// Failed is the error of a run that is done and in which messages have failed.
func Failed(format string, args ...any) error { return coded{fmt.Errorf(format, args...), ExitFailed} }

// Late is the error of a command that got no answer in time.
func Late(format string, args ...any) error { return coded{fmt.Errorf(format, args...), ExitTimeout} }

var (
	// ErrShort ends a run that got fewer messages than it was to wait for.
	ErrShort = errors.New("fewer messages than asked for")
	// ErrInterrupted ends a bounded run that a signal stopped.
	ErrInterrupted = errors.New("interrupted")
)

// outputClosed reports whether err is that of standard output whose reader has gone. A connection that breaks has an error of another type.
func outputClosed(err error) bool {
	written, ok := errors.AsType[*fs.PathError](err)
	return ok && written.Path == os.Stdout.Name() && errors.Is(written, syscall.EPIPE)
}

// ExitCode is that of a command that ended with err.
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

const helpWidth = 100

// help has the help of root and the commands below it wrapped at the width of the terminal, and returns the error of writing it.
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

// before finds what is before the text of a line: its indentation, and the name and kind of a flag.
var before = regexp.MustCompile(`^ *(?:(?:-\w, )?--[\w-]+(?: \S+)? {2,})?`)

// wrap breaks lines at spaces. The rest is below the text of the line. The examples, which are copied, stay as they are.
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
				break // one long word
			}
			b.WriteString(strings.TrimRight(line[:at], " ") + "\n")
			line, head = indent+strings.TrimLeft(line[at:], " "), ""
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}
