// Command jetpull works with JetStream pull consumers from a shell: it fetches
// messages, runs a command for each, watches a consumer, moves a pin, and runs
// the systems that are built on the library.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// A reader of stdout that goes away is an error of that write, not the end
	// of the process: what was not printed is then handed back to the server.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		// The first signal ends the work in good order, the second at once.
		<-signals
		cancel()
		<-signals
		running.leave()
		os.Exit(exitInterrupted)
	}()
	os.Exit(execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	g := &globals{}
	root := newRootCommand(g)
	root.SetArgs(append([]string{}, args...)) // for nil cobra takes the process's own
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	code := exitCode(ctx, err)
	text := plain(err) + advice(cmd, err)
	if g.json {
		_ = writeJSON(errOut, struct {
			Error string `json:"error"`
			Code  int    `json:"code"`
		}{text, code})
		return code
	}
	tell(errOut, "jetpull: %s\n", text)
	if code == exitUsage {
		tell(errOut, "See: %s --help\n", cmd.CommandPath())
	}
	return code
}
