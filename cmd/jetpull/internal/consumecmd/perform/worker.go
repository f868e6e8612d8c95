package perform

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/child"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/pulling"
	"github.com/jetpull/jetpull/internal/crash"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/internal/worker"
)

// The pause before a program that ended is restarted. It doubles from leastPause to mostPause, until the program answers.
const leastPause, mostPause = 100 * time.Millisecond, 10 * time.Second

var (
	// errKilled is the error of messages whose program was killed at the end of the run.
	errKilled = errors.New("the worker was killed at the end of the run")
	errClosed = errors.New("it closed its standard output, and did not end")
	// errDied is the error of a message whose program ended while it had only this message.
	errDied = errors.New("the worker ended while it had the message")
)

// Worker handles messages with long-running programs.
type Worker struct {
	Argv     []string
	InFlight int           // the maximum number of messages that a program has at a time
	Drain    time.Duration // how long the programs may continue after the end of their input
	Stderr   *pulling.Printer
	Log      *slog.Logger
	Crashes  *crash.Counter // counts programs that ended while they had one message; nil: no limit

	programs sync.WaitGroup
	alive    context.Context // ends when the programs are killed
	open     context.Context // ends when no more messages follow
	cancel   context.CancelFunc
	shut     context.CancelFunc

	mu      sync.Mutex
	changed sync.Cond // signalled when a talk may have something to do
	queue   []*call   // messages that no program has; those that may have crashed one come first
}

// call is a message whose handler waits for a result.
type call struct {
	msg  *jetpull.Msg
	done chan error // the result

	// Guarded by the worker's lock.
	by        *talk // the program that has the message, or nil
	alone     bool  // a program ended while it had this and other messages, so the next program gets it alone
	cancelled error // why its handler was cancelled
}

// Start starts n programs, which run until [Worker.Close].
func (w *Worker) Start(n int) {
	w.alive, w.cancel = context.WithCancel(context.Background())
	w.open, w.shut = context.WithCancel(w.alive)
	w.changed.L = &w.mu
	for range n {
		w.programs.Go(w.keep)
	}
}

// Close closes the input of the programs, and waits for their end. It kills programs that still run after Drain.
func (w *Worker) Close() {
	if w.alive == nil {
		return // the run has not begun
	}
	w.mu.Lock()
	w.shut()
	w.changed.Broadcast()
	w.mu.Unlock()
	defer time.AfterFunc(w.Drain, w.kill).Stop()
	w.programs.Wait()
	w.cancel()
}

// kill kills the programs, and fails all messages in the queue.
func (w *Worker) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel()
	for _, c := range w.queue {
		c.done <- errKilled
	}
	w.queue = nil
}

// Handle lets a program handle m. If ctx ends at the end of the run, after the drain, Handle kills all programs, because messages are handed back.
func (w *Worker) Handle(ctx context.Context, m *jetpull.Msg) error {
	c := &call{msg: m, done: make(chan error, 1)}
	w.mu.Lock()
	if w.alive.Err() != nil {
		w.mu.Unlock()
		return errKilled
	}
	w.queue = append(w.queue, c)
	w.changed.Broadcast()
	w.mu.Unlock()
	select {
	case err := <-c.done:
		return w.counted(ctx, m, err)
	case <-ctx.Done():
		if cause := context.Cause(ctx); errors.Is(cause, jetpull.ErrCancelled) {
			return w.drop(c, cause)
		}
		w.kill()
		return <-c.done
	}
}

// drop kills the program that has a message whose handler was cancelled. If no program has the message yet, it leaves the queue.
func (w *Worker) drop(c *call, cause error) error {
	w.mu.Lock()
	c.cancelled = cause
	t, i := c.by, slices.Index(w.queue, c)
	if i >= 0 {
		w.queue = slices.Delete(w.queue, i, i+1)
	}
	w.mu.Unlock()
	switch {
	case i >= 0:
		return cause
	case t != nil:
		t.fail(cause)
	}
	return <-c.done // it may have been answered in the meantime
}

// counted returns the error of a handler. If a program died while it had only this message, counted counts that first.
func (w *Worker) counted(ctx context.Context, m *jetpull.Msg, err error) error {
	if w.Crashes == nil || !errors.Is(err, errDied) {
		return err
	}
	meta, unread := m.Metadata()
	if unread != nil {
		return errors.Join(err, unread)
	}
	id := worker.ID{Seq: meta.Sequence.Stream, Stored: meta.Timestamp.UnixNano()}
	return w.Crashes.Died(ctx, crash.Message{Stream: meta.Stream, Consumer: meta.Consumer, ID: id}, err)
}

// keep runs a program, and restarts it when it ends, until the run is over.
func (w *Worker) keep() {
	for pause := leastPause; w.open.Err() == nil; pause = min(2*pause, mostPause) {
		t := &talk{w: w, had: map[uint64]*call{}}
		err := t.run()
		again := t.end(err)
		if t.answered {
			pause = leastPause
		}
		switch {
		case w.open.Err() == nil:
			w.Log.Warn("the worker ended, and is started again", "program", w.Argv[0], "error", why(err), "in", pause, "messages_again", again)
			_ = watch.Sleep(w.open, pause)
		case err != nil:
			w.Log.Warn("the worker failed at the end", "program", w.Argv[0], "error", err)
		}
	}
}

// why returns the error of a program that ended too early.
func why(err error) error { return cmp.Or(err, errors.New("exit status 0")) }

// talk is one process of a program. Package exec owns the two goroutines that communicate with it. One calls Read for the standard input, and
// the other ReadFrom with the standard output. The first ends when the second ends, or when the run is over.
type talk struct {
	w    *Worker
	kill context.CancelFunc

	// Used only by the goroutine of the standard input.
	text bytes.Buffer // lines that are not read yet

	// Guarded by the worker's lock.
	alone    bool             // it has a message that it must have alone
	had      map[uint64]*call // its messages, by ID
	answered bool
	problem  error // why the program was killed
	over     bool  // its standard output has ended
}

// run runs the program to its end, and returns why it ended.
func (t *talk) run() error {
	ctx, cancel := context.WithCancel(t.w.alive)
	defer cancel()
	t.kill = cancel
	stderr := &lines{to: t.w.Stderr}
	cmd := exec.CommandContext(ctx, t.w.Argv[0], t.w.Argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = t, t, stderr
	err := child.Run(cmd, true)
	_ = stderr.flush()
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	return cmp.Or(t.problem, err)
}

// end settles the messages that a program had when it ended with err. A single message fails, because it may be the cause. If there were several,
// any of them may be the cause, so each is given alone to a program. end returns the number of these.
func (t *talk) end(err error) (again int) {
	w := t.w
	w.mu.Lock()
	defer w.mu.Unlock()
	var several []*call
	for _, c := range t.had {
		c.by = nil
		switch {
		case c.cancelled != nil:
			c.done <- c.cancelled
		case w.alive.Err() != nil:
			c.done <- errKilled
		case len(t.had) == 1:
			c.done <- fmt.Errorf("%w: %w", errDied, why(err))
		default:
			c.alone = true
			several = append(several, c)
		}
	}
	t.had, t.over = nil, true // its background processes may keep its pipes open
	slices.SortFunc(several, func(a, b *call) int { return cmp.Compare(a.msg.Sequence(), b.msg.Sequence()) })
	w.queue = append(several, w.queue...)
	w.changed.Broadcast()
	return len(several)
}

// next takes a message for the program from the queue. It returns nil if the program may not get one now.
func (t *talk) next() *call {
	if t.alone && len(t.had) > 0 || len(t.had) >= t.w.InFlight {
		return nil
	}
	i := slices.IndexFunc(t.w.queue, func(c *call) bool {
		// A message may be delivered twice, as after a reset. A program must not have both, because an answer would not identify one.
		return (!c.alone || len(t.had) == 0) && t.had[c.msg.Sequence()] == nil
	})
	if i < 0 {
		return nil
	}
	c := t.w.queue[i]
	t.w.queue = slices.Delete(t.w.queue, i, i+1)
	t.alone, t.had[c.msg.Sequence()], c.by = c.alone, c, t
	return c
}

// take returns the messages that the program gets now. It waits for the first one. At the end, it returns none.
func (t *talk) take() (calls []*call) {
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	for ; !t.over && t.w.open.Err() == nil; t.w.changed.Wait() {
		for c := t.next(); c != nil; c = t.next() {
			calls = append(calls, c)
		}
		if calls != nil {
			break
		}
	}
	return calls
}

// Read provides the program's standard input.
func (t *talk) Read(p []byte) (int, error) {
	if t.text.Len() == 0 {
		out := json.NewEncoder(&t.text)
		out.SetEscapeHTML(false)
		for _, c := range t.take() {
			m := c.msg
			err := out.Encode(given{m.Sequence(), m.Subject(), m.Headers(), cli.PayloadOf(m.Data()), m.Delivered()})
			if err != nil {
				return 0, err
			}
		}
	}
	return t.text.Read(p) // io.EOF if there are no messages
}

// Write makes talk an [io.Writer]. It is never called, because [io.Copy] calls ReadFrom.
func (t *talk) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }

// ReadFrom reads the program's standard output. A program that closes its output but does not end is killed after [child.OutputAfter].
func (t *talk) ReadFrom(r io.Reader) (int64, error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	var err error
	for n := 1; err == nil && in.Scan(); n++ {
		if err = t.answer(in.Bytes()); err != nil {
			err = fmt.Errorf("line %d of the worker's output, %.200q: %w", n, in.Bytes(), err)
		}
	}
	if errors.Is(in.Err(), bufio.ErrTooLong) {
		err = fmt.Errorf("a line of the worker's output has more than %d bytes", maxLine)
	}
	t.w.mu.Lock()
	t.over = true
	t.w.changed.Broadcast()
	t.w.mu.Unlock()
	if err != nil {
		t.fail(err)
	} else {
		time.AfterFunc(child.OutputAfter, func() { t.fail(errClosed) })
	}
	return 0, err
}

func (t *talk) fail(problem error) {
	t.w.mu.Lock()
	t.problem = problem
	t.w.mu.Unlock()
	t.kill()
}

func (t *talk) answer(line []byte) error {
	a, err := parseAnswer(line)
	if err != nil {
		return err
	}
	t.w.mu.Lock()
	c, ended := t.had[a.ID], a.Outcome != "progress"
	if c != nil && ended {
		delete(t.had, a.ID)
		t.answered, c.by = true, nil
		t.w.changed.Broadcast()
	}
	t.w.mu.Unlock()
	switch {
	case c == nil:
		return fmt.Errorf("the worker does not have a message %d", a.ID)
	case ended:
		c.done <- a.result()
	default:
		_ = c.msg.InProgress() // without a connection, the message is redelivered in any case
	}
	return nil
}
