package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/progress"
)

// Operation is what a server does in the background.
type Operation struct {
	Verb    string // what it is called
	Path    string // where it is shown
	Follow  string // the command that shows it
	Cancel  string // and the one that ends it
	Matched int
	Done    func() (done int, running bool) // of the last answer
}

// lookEvery is the time between two looks at an operation.
const lookEvery = 200 * time.Millisecond

// Follow shows how far an operation is, until its end, and reads each answer into view. A server that restarts continues it, and so does Follow.
func (s *Server) Follow(cmd *cobra.Command, o Operation, view any) (answer json.RawMessage, err error) {
	ctx := cmd.Context()
	bar := progress.New(cmd.ErrOrStderr(), o.Verb, int64(o.Matched))
	defer bar.Clear()
	done, _ := o.Done()
	bar.Add(done)
	answered := time.Now()
	err = cli.Every(ctx, lookEvery, func() error {
		data, err := s.Get(ctx, o.Path, view)
		switch {
		case errors.Is(err, s.unavailable) && time.Since(answered) < s.Timeout:
			return nil
		case err != nil:
			return fmt.Errorf("%w; the %s goes on when the %s does: %s", err, o.Verb, s.name, o.Follow)
		}
		answered = time.Now()
		now, running := o.Done()
		bar.Add(now - done)
		if done = now; !running {
			answer = data
			return errOver
		}
		return nil
	})
	switch {
	case errors.Is(err, errOver):
		return answer, nil
	case ctx.Err() != nil:
		bar.Clear()
		cli.Notice(cmd.ErrOrStderr(), "The %s goes on in the %s, with %s of %s done.\n  %s   shows it\n  %s   ends it\n",
			o.Verb, s.name, progress.Count(done), progress.Count(o.Matched), o.Follow, o.Cancel)
		return nil, cli.ErrInterrupted
	}
	return nil, err
}

// errOver ends the looks at an operation that has ended.
var errOver = errors.New("the operation is over")
