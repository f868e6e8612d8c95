package consumecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/pulling"
	"github.com/jetpull/jetpull/internal/service/progress"
)

// run is one run of consume. It counts the outcomes of its messages, and decides when it ends.
type run struct {
	*consume
	handle func(context.Context, *jetpull.Msg) error

	json   bool
	bar    *progress.Bar
	errOut io.Writer
	stop   context.CancelFunc
	timer  *time.Timer // ends the run; restarted when no message is in progress; nil without --idle

	mu      sync.Mutex
	started int
	running int
	tally   Tally
	open    map[uint64]bool // failed or terminated messages, by sequence; only in bounded runs
	broken  error           // why the run cannot go on
	idled   bool
}

// bounded reports whether the run ends by itself.
func (r *run) bounded() bool { return r.count > 0 || r.idle > 0 }

// Tally counts the outcomes of messages, as --json prints them.
type Tally struct {
	Acknowledged int     `json:"acknowledged"`
	Retried      int     `json:"retried"` // attempts; the message counts again with its next outcome
	DeadLettered int     `json:"dead_lettered"`
	Terminated   int     `json:"terminated"`
	HandedBack   int     `json:"handed_back"`
	Seconds      float64 `json:"seconds"`
}

// newRun prepares a run on a consumer with pending messages. If it prints messages on a terminal, it shows no progress bar.
func (f *consume) newRun(cmd *cobra.Command, pending uint64) *run {
	r := &run{consume: f, json: cli.JSON(cmd), open: map[uint64]bool{}, errOut: cmd.ErrOrStderr()}
	switch {
	case len(f.argv) == 0 && progress.IsTerminal(cmd.OutOrStdout()):
	case r.count > 0:
		r.bar = r.Bar(cmd, int64(r.count))
	case r.bounded(), progress.IsTerminal(r.errOut): // elsewhere, the bar of an unbounded run would write lines without end
		r.bar = r.Bar(cmd, int64(pending))
	}
	r.errOut = r.bar.Over(r.errOut)
	return r
}

// messages handles messages until the run ends.
func (r *run) messages(ctx context.Context, sub *jetpull.Subscription, opts []jetpull.ConsumeOption) error {
	runCtx, stop := context.WithCancel(ctx)
	defer stop()
	begin := time.Now()
	r.stop = stop
	if r.idle > 0 {
		r.timer = time.AfterFunc(r.idle, r.endIdle)
		defer r.timer.Stop()
	}
	defer context.AfterFunc(ctx, r.stopping)()
	opts = append(opts, jetpull.Logger(cli.Log(r.errOut, r.json)))
	err := sub.Consume(runCtx, r.one, opts...)
	stop()
	r.bar.Clear() // the summary replaces it
	if errors.Is(err, jetpull.ErrInvalidOption) {
		return err
	}
	r.mu.Lock() // a handler may still run after the drain
	defer r.mu.Unlock()
	s, t := sub.Stats(), &r.tally
	t.Retried, t.DeadLettered, t.Terminated = int(s.Retried), int(s.DeadLettered), int(s.Terminated)
	t.HandedBack += int(s.HandedBack + s.Failed - s.Retried - s.DeadLettered - s.Terminated)
	t.Seconds = time.Since(begin).Seconds()
	r.summary(t)
	return errors.Join(err, r.verdict(ctx, t.DeadLettered+t.Terminated))
}

// one handles one message. If the output cannot be written, it hands the message back.
func (r *run) one(ctx context.Context, m *jetpull.Msg) error {
	if !r.begin() {
		return m.Nak()
	}
	err := r.handle(ctx, m)
	r.done(m.Sequence(), err)
	if errors.Is(err, pulling.ErrOutput) {
		return m.Nak()
	}
	return err
}

func (r *run) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		r.tally.HandedBack++
		return false
	}
	r.started++
	if r.running++; r.timer != nil {
		r.timer.Stop() // it could fire just when the message is done, and end the run
	}
	return true
}

func (r *run) done(seq uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running--; r.running == 0 && r.timer != nil {
		r.timer.Reset(r.idle)
	}
	if err != nil && r.bounded() {
		r.open[seq] = true
	}
	switch {
	case err == nil:
		delete(r.open, seq)
		r.tally.Acknowledged++
	case errors.Is(err, pulling.ErrOutput):
		r.tally.HandedBack++
		r.broken = cmp.Or(r.broken, err)
		r.stop()
		return
	}
	r.bar.Add(1)
}

// endIdle ends the run if no handler runs. It is called --idle after the start, and --idle after the last running handler has returned.
func (r *run) endIdle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idled = r.running == 0; r.idled {
		r.stop()
	}
}

func (r *run) summary(t *Tally) {
	switch {
	case r.Quiet:
		return
	case r.json:
		_ = cli.WriteJSON(r.errOut, t)
		return
	}
	line := progress.Count(t.Acknowledged) + " acknowledged"
	for _, part := range []struct {
		n    int
		what string
	}{{t.Retried, "retried"}, {t.DeadLettered, "dead-lettered"}, {t.Terminated, "terminated"}, {t.HandedBack, "handed back"}} {
		if part.n > 0 {
			line += fmt.Sprintf(", %s %s", progress.Count(part.n), part.what)
		}
	}
	took := time.Duration(t.Seconds * float64(time.Second))
	rate := progress.Rate(int64(t.Acknowledged+t.Retried+t.DeadLettered+t.Terminated), took)
	cli.Notice(r.errOut, "%s in %s, %s/s\n", line, progress.Short(took), progress.Count(rate))
}

// verdict returns the error that determines the exit code. givenUp is the number of messages that were given up, some of them before their handler
// began. Interrupting an unbounded run is not an error. mu must be held.
func (r *run) verdict(ctx context.Context, givenUp int) error {
	failed := max(givenUp, len(r.open))
	switch {
	case r.broken != nil:
		return r.broken
	case !r.bounded():
		return nil
	case ctx.Err() != nil && !r.idled && (r.count == 0 || r.started < r.count):
		return fmt.Errorf("%w after %s", cli.ErrInterrupted, progress.Plural(r.started, "message"))
	case r.idled && r.started+givenUp == 0:
		return fmt.Errorf("%w within %v", jetpull.ErrNoMessages, r.idle)
	case r.idled && r.count > 0 && r.started < r.count:
		return fmt.Errorf("%w: %d of %d, then nothing for %v", cli.ErrShort, r.started, r.count, r.idle)
	case failed > 0:
		return cli.Failed("not every message was acknowledged: %s failed or were terminated", progress.Count(failed))
	}
	return nil
}

// stopping prints what an interrupted run waits for.
func (r *run) stopping() {
	r.mu.Lock()
	running := r.running
	r.mu.Unlock()
	if running == 0 || r.Quiet || r.json {
		return
	}
	cli.Notice(r.errOut, "Stopping: %s in progress, with up to %v to end; interrupt again to end at once\n", progress.Plural(running, "message"),
		r.drain)
}
