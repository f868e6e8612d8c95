package jetpull_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

type ctx = context.Context

// pinnedCfg is a consumer with a pin that lasts 9 s.
var pinnedCfg = jetstream.ConsumerConfig{
	PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"g"}, PinnedTTL: 9 * time.Second,
}

// world is a stage with a Subscription on it.
type world struct {
	*stage.Stage
	t   *testing.T
	sub *jetpull.Subscription
	j   stage.Journal // of the handlers
}

// on runs a test in virtual time on a consumer. opts are the defaults of the
// Subscription.
func on(t *testing.T, cfg jetstream.ConsumerConfig, test func(*testing.T, *world), opts ...jetpull.SubscribeOption) {
	t.Helper()
	onStage(t, stage.Config{Consumer: cfg}, test, opts...)
}

// onStage is on for a test that controls the server and the connection.
func onStage(t *testing.T, cfg stage.Config, test func(*testing.T, *world), opts ...jetpull.SubscribeOption) {
	t.Helper()
	stage.Run(t, cfg, func(s *stage.Stage) {
		w := &world{Stage: s, t: s.T}
		w.sub = w.subscribe(w.JS, opts...)
		test(s.T, w)
	})
}

// at and atStage are on and onStage as functions for t.Run.
func at(cfg jetstream.ConsumerConfig, test func(*testing.T, *world), opts ...jetpull.SubscribeOption) func(*testing.T) {
	return atStage(stage.Config{Consumer: cfg}, test, opts...)
}

func atStage(cfg stage.Config, test func(*testing.T, *world), opts ...jetpull.SubscribeOption) func(*testing.T) {
	return func(t *testing.T) { onStage(t, cfg, test, opts...) }
}

// subscribe creates a Subscription. When the test ends, it closes the Subscription
// and checks that nothing is left.
func (w *world) subscribe(js jetstream.JetStream, opts ...jetpull.SubscribeOption) *jetpull.Subscription {
	w.t.Helper()
	sub, err := jetpull.Subscribe(w.t.Context(), js, "S", "C", opts...)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := sub.Close(ctx); !w.t.Failed() {
			require.NoError(w.t, err)
			require.Zero(w.t, sub.Stats().Outstanding, "messages that a closed Subscription still expects")
		}
	})
	return sub
}

// answer makes the server answer all pulls with a status, at once.
func (w *world) answer(code int, text string) {
	w.TakePulls(func(p stage.Pull) bool { return w.Peer.Status(p.Reply, code, text) || true })
}

// disconnect cuts the connection, and prevents another one until reconnect.
func (w *world) disconnect() {
	w.Peer.Refuse(true)
	w.Peer.Cut()
	synctest.Wait()
}

func (w *world) reconnect() { w.Peer.Refuse(false) }

// bounded checks that no second after a time had more than n pulls.
func (w *world) bounded(from time.Time, n int) {
	w.t.Helper()
	pulls := w.PullsSince(from)
	for i := n; i < len(pulls); i++ {
		require.GreaterOrEqual(w.t, pulls[i].At.Sub(pulls[i-n].At), time.Second, "more than %d pulls within a second", n)
	}
}

// soon waits until a condition is true, and fails the test if that takes longer
// than a limit.
func (w *world) soon(within time.Duration, what string, is func() bool) {
	w.t.Helper()
	for from := time.Now(); !is(); stage.Pass(time.Millisecond) {
		require.LessOrEqual(w.t, time.Since(from), within, what)
	}
}

// deliveries returns how often the server has delivered a message; 0 means all.
func (w *world) deliveries(seq uint64) (n int) {
	for _, e := range w.Model.History() {
		if e.Kind == model.Delivered && (seq == 0 || e.Seq == seq) {
			n++
		}
	}
	return n
}

// result is what a call in the background returned, and when.
type result struct {
	ms  []*jetpull.Msg
	err error
	at  time.Duration // since the test began
}

// later makes a call in the background.
func (w *world) later(call func() ([]*jetpull.Msg, error)) <-chan result {
	ch := make(chan result, 1)
	go func() {
		ms, err := call()
		ch <- result{ms: ms, err: err, at: w.Elapsed()}
	}()
	synctest.Wait()
	return ch
}

// next is Next in the background.
func (w *world) next(ctx context.Context, opts ...jetpull.NextOption) <-chan result {
	return w.later(func() ([]*jetpull.Msg, error) { return one(w.sub.Next(ctx, opts...)) })
}

// fetch is Fetch in the background.
func (w *world) fetch(ctx context.Context, n int, opts ...jetpull.FetchOption) <-chan result {
	return w.later(func() ([]*jetpull.Msg, error) { return w.sub.Fetch(ctx, n, opts...) })
}

// one converts the result of Next to that of Fetch. It fails the test if there are
// both a message and an error, or neither.
func one(m *jetpull.Msg, err error) ([]*jetpull.Msg, error) {
	switch {
	case m != nil && err != nil:
		return nil, errors.New("a message and an error")
	case m == nil && err == nil:
		return nil, errors.New("neither a message nor an error")
	case m == nil:
		return nil, err
	}
	return []*jetpull.Msg{m}, nil
}

// run is a running Consume.
type run struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
	errs   *errorList
}

// consume starts Consume with the test's logger and OnError.
func (w *world) consume(h jetpull.Handler, opts ...jetpull.ConsumeOption) *run {
	w.t.Helper()
	return w.consumeOn(w.sub, h, opts...)
}

func (w *world) consumeOn(sub *jetpull.Subscription, h jetpull.Handler, opts ...jetpull.ConsumeOption) *run {
	w.t.Helper()
	return w.start(func(ctx context.Context, more ...jetpull.ConsumeOption) error {
		return sub.Consume(ctx, h, append(more, opts...)...)
	})
}

// start runs a call in the background, with the options that it gets.
func (w *world) start(call func(context.Context, ...jetpull.ConsumeOption) error) *run {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	r := &run{t: w.t, cancel: cancel, done: make(chan error, 1), errs: &errorList{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.done <- call(ctx, jetpull.Logger(w.Logs.Logger()), jetpull.OnError(r.errs.add))
	}()
	w.t.Cleanup(func() { // in case the test has not stopped it
		cancel()
		<-ended
		if len(r.done) > 0 && !w.t.Failed() {
			require.NoError(w.t, <-r.done)
		}
	})
	synctest.Wait()
	return r
}

// stop ends Consume and returns its result.
func (r *run) stop() error {
	r.t.Helper()
	r.cancel()
	return r.result()
}

// result waits for the end of Consume.
func (r *run) result() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(10 * time.Minute):
		r.t.Fatal("Consume does not end")
		return nil
	}
}

// running reports whether Consume still runs.
func (r *run) running() bool { return len(r.done) == 0 }

// errorList collects the errors that OnError gets.
type errorList struct {
	mu   sync.Mutex
	errs []error
}

func (l *errorList) add(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

func (l *errorList) all() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.errs)
}

// taking is a handler that records each message in a journal and takes d for it.
func taking(j *stage.Journal, d time.Duration) jetpull.Handler {
	return func(_ context.Context, m *jetpull.Msg) error {
		j.Note(m.Sequence())
		if d > 0 {
			<-time.After(d)
		}
		return nil
	}
}

// failing is a handler that records each message, and fails the first times that
// it gets one of seqs.
func failing(j *stage.Journal, times int, seqs ...int) jetpull.Handler {
	return func(_ context.Context, m *jetpull.Msg) error {
		if n := j.Note(m.Sequence()); n <= times && slices.Contains(seqs, int(m.Sequence())) {
			return errBroken
		}
		return nil
	}
}

var errBroken = errors.New("broken")

// bodies are the payloads of messages, as numbers.
func bodies(ms []*jetpull.Msg) []int {
	var all []int
	for _, m := range ms {
		n, _ := strconv.Atoi(string(m.Data()))
		all = append(all, n)
	}
	return all
}

// instant is how late timers of a server may be.
const instant = 10 * time.Microsecond

func itoa(n int) string { return strconv.Itoa(n) }

// near asserts a time with some tolerance.
func near(t *testing.T, want, got, within time.Duration, what ...any) {
	t.Helper()
	require.InDelta(t, want.Seconds(), got.Seconds(), within.Seconds(), what...)
}
