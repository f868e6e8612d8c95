package test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// logBook is a slog.Handler that keeps what is logged.
type logBook struct {
	mu    sync.Mutex
	lines []logLine
}

type logLine struct {
	at    time.Time
	level slog.Level
	text  string // message and attributes
}

func (*logBook) Enabled(context.Context, slog.Level) bool { return true }
func (b *logBook) WithAttrs([]slog.Attr) slog.Handler     { return b }
func (b *logBook) WithGroup(string) slog.Handler          { return b }

func (b *logBook) Handle(_ context.Context, r slog.Record) error {
	l := logLine{at: time.Now(), level: r.Level, text: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		l.text += " " + a.String()
		return true
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, l)
	return nil
}

// with are the lines at a level or above that have all the given texts.
func (b *logBook) with(level slog.Level, texts ...string) (found []logLine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.lines {
		ok := l.level >= level
		for _, text := range texts {
			ok = ok && strings.Contains(strings.ToLower(l.text), text)
		}
		if ok {
			found = append(found, l)
		}
	}
	return found
}

// texts are the lines of the book, cut short: a panic has its stack with it.
func (b *logBook) texts() (all []string) {
	for _, l := range b.with(slog.LevelDebug) {
		all = append(all, fmt.Sprintf("%s %.100s", l.level, l.text))
	}
	return all
}

// loggers are the ways in which a Consume has a logger: its own, and slog's.
var loggers = map[string]func(*testing.T, *logBook) []jetpull.Option{
	"Logger": func(_ *testing.T, b *logBook) []jetpull.Option {
		return []jetpull.Option{jetpull.Logger(slog.New(b))}
	},
	"slog.Default": func(t *testing.T, b *logBook) []jetpull.Option {
		before := slog.Default()
		slog.SetDefault(slog.New(b))
		t.Cleanup(func() {
			slog.SetDefault(before)
			log.SetOutput(os.Stderr) // which SetDefault leaves with the book
		})
		return nil
	},
}

// TestFailuresAreLogged: nobody is left in the dark, whatever the options.
func TestFailuresAreLogged(t *testing.T) {
	for name, logger := range loggers {
		t.Run(name, func(t *testing.T) {
			virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
				var book logBook
				opts := append(logger(t, &book), jetpull.MaxAttempts(2), jetpull.DeadLetter("dead.s"))
				run := consume(t, w.sub, func(_ context.Context, m *jetpull.Msg) error {
					switch m.Subject() {
					case "s.fails":
						return errNoUse
					case "s.panics":
						panic("out of luck")
					}
					return nil
				}, opts...)
				w.publish("s.good", 1)
				w.publish("s.fails", 1)
				w.publish("s.panics", 1)
				w.settled()
				run.end(t)
				require.NotEmpty(t, book.with(slog.LevelWarn, "no use", "sequence=2"), "a failed handler: %v", book.texts())
				require.NotEmpty(t, book.with(slog.LevelWarn, "out of luck", "sequence=3"), "a panic: %v", book.texts())
				require.NotEmpty(t, book.with(slog.LevelWarn, "dead letter"), "a dead letter: %v", book.texts())
				require.Empty(t, book.with(slog.LevelWarn, "sequence=1"), "a message that was handled: %v", book.texts())
				if name == "slog.Default" {
					require.Equal(t, len(book.lines), len(book.with(slog.LevelWarn)), "warnings and errors only: %v", book.texts())
				}
			})
		})
	}
}

// meddler is a slog.Handler that calls back into the Subscription at each line.
type meddler struct {
	logBook
	sub     atomic.Pointer[jetpull.Subscription]
	closing atomic.Bool // the next line closes the Subscription
	closed  chan error
}

func (d *meddler) WithAttrs([]slog.Attr) slog.Handler { return d }
func (d *meddler) WithGroup(string) slog.Handler      { return d }

func (d *meddler) Handle(ctx context.Context, r slog.Record) error {
	err := d.logBook.Handle(ctx, r)
	sub := d.sub.Load()
	if sub == nil {
		return err
	}
	sub.Stats()
	sub.Pin()
	if d.closing.CompareAndSwap(true, false) {
		go func() { d.closed <- sub.Close(context.WithoutCancel(ctx)) }()
	}
	m, nextErr := sub.Next(ctx, jetpull.NoWait(), jetpull.MaxWait(100*time.Millisecond))
	if nextErr == nil {
		return errors.Join(err, m.Ack())
	}
	return err
}

func alwaysFails(_ context.Context, m *jetpull.Msg) error {
	return fmt.Errorf("%w: message %d", errNoUse, m.Sequence())
}

// TestALoggerMayCallBack: whatever is logged is logged without a lock, and off
// the path on which messages arrive.
func TestALoggerMayCallBack(t *testing.T) {
	t.Parallel()
	const messages = 30
	var failed atomic.Bool
	for _, tc := range []struct {
		name    string
		cfg     jetstream.ConsumerConfig
		group   []jetpull.Option
		opts    []jetpull.Option
		handler jetpull.Handler
		drive   func(*testing.T, *tap)
	}{
		{name: "failures", opts: []jetpull.Option{jetpull.RetryDelays(0), jetpull.MaxAttempts(3)}, handler: alwaysFails},
		{name: "panics", opts: []jetpull.Option{jetpull.RetryDelays(0), jetpull.MaxAttempts(3)}, handler: func(context.Context, *jetpull.Msg) error { panic("out of luck") }},
		{
			name: "retries fill the window",
			opts: []jetpull.Option{byKey, jetpull.Prefetch(messages + 10), jetpull.RetryDelays(2 * time.Second)},
			handler: func(ctx context.Context, m *jetpull.Msg) error {
				if failed.Swap(true) {
					return nil
				}
				return alwaysFails(ctx, m)
			},
			drive: func(t *testing.T, w *tap) { w.publish(t, 20) },
		},
		{name: "dead letters", opts: []jetpull.Option{jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s")}, handler: alwaysFails},
		{
			name: "last deliveries", cfg: jetstream.ConsumerConfig{MaxDeliver: 2}, handler: alwaysFails,
			opts: []jetpull.Option{jetpull.RetryDelays(0), jetpull.MaxAttempts(2), jetpull.DeadLetter("dead.s"), jetpull.Concurrency(3)},
			drive: func(t *testing.T, w *tap) { // dead letters are refused for a while
				require.NoError(t, w.js.DeleteStream(t.Context(), "DEAD"))
				w.publish(t, 3)
				consumerHas(t, w.js, "S", "C", func(i *jetstream.ConsumerInfo) bool {
					return i.NumPending == 0 && i.NumAckPending > 0
				}, "messages that cannot be settled")
				natstest.Stream(t, w.js, "DEAD", "dead.>")
			},
		},
		{name: "reconnects", cfg: jetstream.ConsumerConfig{AckWait: 2 * time.Second}, opts: []jetpull.Option{jetpull.Concurrency(2)}, drive: func(t *testing.T, w *tap) {
			for n := range uint64(3) {
				w.proxy.Cut()
				statsBecome(t, w.sub, "reconnected", func(s jetpull.Stats) bool { return s.Reconnects > n })
			}
		}},
		{name: "pins", cfg: pinnedFor(2 * time.Second), group: []jetpull.Option{jetpull.Group("A")}, drive: func(t *testing.T, w *tap) {
			// An Unpin in the moment of a gain may leave the pin to a pull that was given up, until the timeout.
			for range 3 {
				before := w.sub.Stats().Messages
				require.NoError(t, jetpull.Unpin(t.Context(), w.js, "S", "C", "A"))
				w.publish(t, 1)
				statsBecome(t, w.sub, "a message under a new pin", func(s jetpull.Stats) bool { return s.Messages > before })
			}
		}},
		{name: "a consumer that is recreated", opts: []jetpull.Option{jetpull.AwaitConsumer()}, drive: func(t *testing.T, w *tap) {
			w.ackPending(t, 0)
			require.NoError(t, w.js.DeleteConsumer(t.Context(), "S", "C"))
			w.consumer(t, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
			w.publish(t, 1)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			book := &meddler{}
			w := newTap(t, tc.cfg, append(tc.group, jetpull.Logger(slog.New(book)))...)
			natstest.Stream(t, w.js, "DEAD", "dead.>")
			book.sub.Store(w.sub)
			h := tc.handler
			if h == nil {
				h = func(context.Context, *jetpull.Msg) error { return nil }
			}
			run := consume(t, w.sub, h, tc.opts...)
			w.publish(t, messages)
			// The server tells the consumer of a message after it has answered the publisher.
			statsBecome(t, w.sub, "all have come", func(s jetpull.Stats) bool { return s.Messages >= messages })
			if tc.drive != nil {
				tc.drive(t, w)
			}
			consumerHas(t, w.js, "S", "C", func(i *jetstream.ConsumerInfo) bool {
				return i.NumPending == 0 && i.NumAckPending == 0
			}, "all is settled")
			run.end(t)
			require.NotEmpty(t, book.with(slog.LevelDebug), "something is logged")
		})
	}
}

// TestALoggerMayCloseTheSubscription, from another goroutine.
func TestALoggerMayCloseTheSubscription(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	book := &meddler{closed: make(chan error, 1)}
	sub := r.subscribe(t, jetstream.ConsumerConfig{}, jetpull.Logger(slog.New(book)))
	run := consume(t, sub, func(ctx context.Context, m *jetpull.Msg) error {
		book.sub.Store(sub)
		book.closing.Store(true)
		return alwaysFails(ctx, m)
	}, jetpull.RetryDelays(0))
	r.publish(t, 10)
	require.NoError(t, receive(t, book.closed, "end of Close"))
	require.ErrorIs(t, receive(t, run.done, "end of Consume"), jetpull.ErrClosed)
}
