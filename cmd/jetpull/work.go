package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/internal/progress"
)

// work is one run of consume: what was started, what came of it, and when to
// end.
type work struct {
	count  int
	idle   time.Duration
	handle func(context.Context, *jetpull.Msg) error
	drain  time.Duration
	bar    *progress.Bar
	line   *progress.Line // of a run without an end
	errOut io.Writer
	json   bool
	quiet  bool
	stop   context.CancelFunc
	// journal tells what Consume logs.
	journal journal

	mu      sync.Mutex
	started int
	running int
	last    time.Time // when a message was last started or done
	tally   tally
	open    map[uint64]bool // messages that failed or were terminated, by sequence; bounded runs only
	broken  error           // why the run cannot go on
	idled   bool
}

// tally is what came of the messages, as --json prints it.
type tally struct {
	Acked      int     `json:"acked"`
	Failed     int     `json:"failed"`
	Terminated int     `json:"terminated"`
	Returned   int     `json:"handed_back"`
	Seconds    float64 `json:"seconds"`
}

// newWork prepares a run on a consumer that has as much pending.
func newWork(cmd *cobra.Command, g *client.Globals, f *consumeFlags, pending uint64) *work {
	w := &work{open: map[uint64]bool{}, count: f.count, idle: f.idle, drain: f.drain, json: g.JSON, quiet: g.Quiet, errOut: cmd.ErrOrStderr()}
	// A bar among lines on the same terminal would only be in their way.
	printing := len(f.argv) == 0 && progress.IsTerminal(cmd.OutOrStdout())
	if w.bounded() && !g.Quiet && !g.JSON && !printing {
		if f.count > 0 {
			w.bar = progress.New(w.errOut, "consume", int64(f.count))
		} else {
			w.bar = progress.NewOpen(w.errOut, "consume", int64(pending))
		}
		w.errOut = w.bar.Over(w.errOut)
	}
	if !w.bounded() && !g.Quiet && !g.JSON && !printing {
		w.line = progress.NewLine(w.errOut)
		w.errOut = w.line.Over(w.errOut)
	}
	w.journal.work = w
	w.handle = f.handler(cmd, g, func(out io.Writer) io.Writer { return w.line.Over(w.bar.Over(out)) })
	return w
}

func (w *work) run(ctx context.Context, sub *jetpull.Subscription, opts []jetpull.Option) error {
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	begin := time.Now()
	w.stop, w.last = stop, begin
	var watch sync.WaitGroup
	if w.idle > 0 {
		watch.Go(func() { w.watchIdle(runCtx) })
	}
	if w.line != nil {
		watch.Go(func() { w.live(runCtx, sub) })
	}
	defer context.AfterFunc(ctx, w.stopping)()
	sumUp := func() {
		if !w.quiet {
			w.line.Clear()
			w.mu.Lock()
			t := w.tally
			w.mu.Unlock()
			t.Seconds = time.Since(begin).Seconds()
			w.summary(t)
		}
	}
	lastWords.Store(&sumUp)
	defer lastWords.Store(nil)
	opts = append(opts, jetpull.OnError(w.problem), jetpull.Logger(slog.New(&w.journal)))
	err := sub.Consume(runCtx, w.one, opts...)
	stop()
	watch.Wait()
	w.bar.Clear() // the summary says it
	w.tally.Seconds = time.Since(begin).Seconds()
	w.tally.Returned += int(sub.Stats().HandedBack)
	if errors.Is(err, jetpull.ErrInvalidOption) {
		return err
	}
	if !w.quiet {
		w.summary(w.tally)
	}
	return errors.Join(err, w.verdict(ctx))
}

// one handles one message, or hands it back where the run has enough.
func (w *work) one(ctx context.Context, m *jetpull.Msg) error {
	if !w.begin() {
		return m.Nak()
	}
	err := w.handle(ctx, m)
	w.done(m.Sequence(), err)
	return err
}

func (w *work) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil || w.count > 0 && w.started == w.count {
		w.tally.Returned++
		return false
	}
	w.started++
	w.running++
	w.last = time.Now()
	if w.started == w.count {
		w.stop() // pulling ends; what is running goes on
	}
	return true
}

func (w *work) done(seq uint64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running--
	w.last = time.Now()
	if err == nil {
		delete(w.open, seq)
	} else if w.bounded() {
		w.open[seq] = true
	}
	var terminated *terminated
	var unwritten *unwritten
	switch {
	case err == nil:
		w.tally.Acked++
	case errors.As(err, &unwritten):
		w.tally.Returned++
		if w.broken == nil {
			w.broken = err
		}
		w.stop()
		return
	case errors.As(err, &terminated):
		w.tally.Terminated++
	default:
		w.tally.Failed++
	}
	w.bar.Add(1)
}

// watchIdle ends the run when nothing has come for long enough and nothing runs.
func (w *work) watchIdle(ctx context.Context) {
	timer := time.NewTimer(w.idle)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		w.mu.Lock()
		left := w.idle
		if w.running == 0 {
			left = w.idle - time.Since(w.last)
		}
		w.idled = left <= 0
		w.mu.Unlock()
		if left <= 0 {
			w.stop()
			return
		}
		timer.Reset(left)
	}
}

// problem tells what went wrong, as it happens.
func (w *work) problem(err error) {
	var unwritten *unwritten
	var status *jetpull.StatusError
	switch {
	case errors.As(err, &unwritten):
		// This is what the run ends with.
	case errors.As(err, &status), w.journal.has(err):
		// There is one of these for each pull; the log has one for all.
	default:
		w.warn(client.Plain(err))
	}
}

// listens tells where other clients find the server of this process.
func (w *work) listens(url string) {
	if w.json {
		_ = cli.WriteJSON(w.errOut, struct {
			Server string `json:"server"`
		}{url})
		return
	}
	cli.Tell(w.errOut, "The embedded server listens at %s without authentication: every program on this machine can use it\n", url)
}

// warn tells of a problem of the run.
func (w *work) warn(text string) {
	client.Warn(w.errOut, w.json, text)
}

func (w *work) summary(t tally) {
	if w.json {
		_ = cli.WriteJSON(w.errOut, t)
		return
	}
	// A message that fails and is acknowledged later counts in both.
	line, attempts := progress.Count(t.Acked)+" acknowledged", "attempts failed"
	if t.Failed == 1 {
		attempts = "attempt failed"
	}
	for _, part := range []struct {
		n    int
		what string
	}{{t.Failed, attempts}, {t.Terminated, "terminated"}, {t.Returned, "handed back"}} {
		if part.n > 0 {
			line += fmt.Sprintf(", %s %s", progress.Count(part.n), part.what)
		}
	}
	took := time.Duration(t.Seconds * float64(time.Second))
	cli.Tell(w.errOut, "%s in %s, %s/s\n", line, progress.Short(took), progress.Count(progress.Rate(int64(t.Acked+t.Failed+t.Terminated), took)))
}

// verdict is what the exit code says of the run. A worker without bounds that
// was interrupted has done what it was asked to.
func (w *work) verdict(ctx context.Context) error {
	switch {
	case w.broken != nil:
		return w.broken
	case !w.bounded():
		return nil
	case ctx.Err() != nil && !w.idled && (w.count == 0 || w.started < w.count):
		return fmt.Errorf("%w after %d messages", cli.ErrInterrupted, w.started)
	case w.idled && w.started == 0:
		return fmt.Errorf("%w within %v", jetpull.ErrNoMessages, w.idle)
	case w.idled && w.count > 0 && w.started < w.count:
		return fmt.Errorf("%w: %d of %d, then nothing for %v", cli.ErrShort, w.started, w.count, w.idle)
	case len(w.open) > 0:
		return fmt.Errorf("%w: %s failed or were terminated", cli.ErrFailed, progress.Count(len(w.open)))
	}
	return nil
}

// bounded reports whether the run ends by itself.
func (w *work) bounded() bool { return w.count > 0 || w.idle > 0 }

// unwritten says that stdout takes no more: the run cannot go on, and the
// message is not done.
type unwritten struct{ error }

// Unwrap returns why.
func (e *unwritten) Unwrap() error { return e.error }

// terminated is the error of a message that is never to be delivered again.
type terminated struct{ error }

// Unwrap returns the result for the library.
func (e *terminated) Unwrap() error { return e.error }
