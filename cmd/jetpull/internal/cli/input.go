package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/internal/service/progress"
)

// Input is a command's standard input, whose reads end with [ErrInterrupted] when the command is interrupted. It says on a terminal that the
// command waits for what the user types.
func Input(cmd *cobra.Command) io.Reader {
	in := cmd.InOrStdin()
	if progress.IsTerminal(in) {
		Notice(cmd.ErrOrStderr(), "Reading standard input; end it with Ctrl-D\n")
	}
	read, write := io.Pipe()
	context.AfterFunc(cmd.Context(), func() { _ = write.CloseWithError(ErrInterrupted) })
	go func() { // a read that has begun ends with the process at the latest
		_, err := io.Copy(write, in)
		_ = write.CloseWithError(err)
	}()
	return read
}
