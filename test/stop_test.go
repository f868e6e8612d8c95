package test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

// handed are the messages that handlers were given.
type handed struct {
	mu   sync.Mutex
	seqs map[uint64]bool
}

func (h *handed) add(t *testing.T, m *jetpull.Msg) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seqs == nil {
		h.seqs = map[uint64]bool{}
	}
	if h.seqs[m.Sequence()] {
		t.Errorf("message %d was handed over twice", m.Sequence())
	}
	h.seqs[m.Sequence()] = true
	return len(h.seqs)
}

func (h *handed) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seqs)
}

// all waits until n messages are handed over.
func (h *handed) all(t *testing.T, n int) {
	t.Helper()
	eventually(t, func() error {
		if got := h.len(); got < n {
			return fmt.Errorf("%d of %d messages", got, n)
		}
		return nil
	}, "everything is handed over")
}

// stopped is a Consume or a loop over Messages that stops at its twentieth message,
// when others are read ahead. What it is handling then it goes on with for long.
type stopped struct {
	handed
	t    *testing.T
	r    *rig
	sub  *jetpull.Subscription
	once sync.Once
	at   chan time.Time // has the time of the stop, right before it
	busy chan struct{}  // closed when the handlers that run may end
}

func newStopped(t *testing.T) *stopped {
	r := newRig(t)
	return &stopped{
		t: t, r: r, at: make(chan time.Time, 1), busy: make(chan struct{}),
		sub: r.subscribe(t, jetstream.ConsumerConfig{AckWait: time.Minute, MaxAckPending: -1}),
	}
}

// takes hands m over, calls stop at the twentieth and goes on with that and those
// that follow.
func (s *stopped) takes(m *jetpull.Msg, stop func()) {
	if s.add(s.t, m) < 20 {
		return
	}
	s.once.Do(func() {
		whenReadAhead(s.t, s.sub)
		s.at <- time.Now()
		stop()
	})
	<-s.busy
}

// consume runs Consume, which stop is to end.
func (s *stopped) consume(ctx context.Context, stop func(), opts ...jetpull.Option) error {
	return s.sub.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
		s.takes(m, stop)
		return nil
	}, append(opts, jetpull.Concurrency(3))...)
}

// loop runs over Messages until stop has ended it.
func (s *stopped) loop(ctx context.Context, stop func()) (last error) {
	for m, err := range s.sub.Messages(ctx) {
		if last = err; err != nil {
			continue
		}
		if err := m.Ack(); err != nil {
			return err
		}
		s.takes(m, stop)
	}
	return last
}

// close closes the Subscription, which waits for what runs.
func (s *stopped) close() { go func() { _ = s.sub.Close(context.WithoutCancel(s.t.Context())) }() }

// whenReadAhead waits until messages wait in the client, so that there is
// something to strand.
func whenReadAhead(t *testing.T, sub *jetpull.Subscription) {
	eventually(t, func() error {
		if st := sub.Stats(); st.Buffered == 0 {
			return fmt.Errorf("nothing is read ahead: %+v", st)
		}
		return nil
	}, "read-ahead")
}

const stopMessages = 1000

// TestAfterAnyStopNothingIsStranded: AckWait is a minute, and what the one that
// stops has read ahead and not handed over is with another one two seconds after the
// stop, though its handlers go on.
func TestAfterAnyStopNothingIsStranded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		run  func(context.Context, context.CancelFunc, *stopped) error
		is   error
		// early: it ends while its handlers go on, or none can.
		early bool
	}{
		{"Consume, context ends", func(ctx context.Context, cancel context.CancelFunc, s *stopped) error {
			return s.consume(ctx, cancel)
		}, nil, false},
		{"Consume, context ends, DrainTimeout", func(ctx context.Context, cancel context.CancelFunc, s *stopped) error {
			return s.consume(ctx, cancel, jetpull.DrainTimeout(100*time.Millisecond))
		}, jetpull.ErrDrainTimeout, true},
		{"Consume, Close", func(ctx context.Context, _ context.CancelFunc, s *stopped) error {
			return s.consume(ctx, s.close)
		}, jetpull.ErrClosed, false},
		{"Messages, break", func(ctx context.Context, _ context.CancelFunc, s *stopped) error {
			for m, err := range s.sub.Messages(ctx) {
				if err != nil {
					return err
				}
				if err := m.Ack(); err != nil {
					return err
				}
				if s.add(s.t, m) == 20 {
					whenReadAhead(s.t, s.sub)
					s.at <- time.Now()
					break
				}
			}
			return nil
		}, nil, true},
		{"Messages, context ends", func(ctx context.Context, cancel context.CancelFunc, s *stopped) error {
			return s.loop(ctx, cancel)
		}, nil, false},
		{"Messages, Close", func(ctx context.Context, _ context.CancelFunc, s *stopped) error {
			return s.loop(ctx, s.close)
		}, jetpull.ErrClosed, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newStopped(t)
			s.r.publish(t, stopMessages)
			ended := s.start(tc.run)
			at := receive(t, s.at, "the stop")
			other := consume(t, subscribe(t, s.r.js, "S", "C"), func(_ context.Context, m *jetpull.Msg) error {
				s.add(t, m)
				return nil
			})
			s.all(t, stopMessages)
			require.Less(t, time.Since(at), handBackWithin, "since the stop")
			if !tc.early {
				require.Empty(t, ended, "it waits for its handlers")
				close(s.busy)
			}
			require.ErrorIs(t, receive(t, ended, "the end"), tc.is)
			if tc.early {
				close(s.busy)
			}
			s.r.ackPending(t, 0)
			other.end(t)
		})
	}
}

// start runs what is to be stopped.
func (s *stopped) start(run func(context.Context, context.CancelFunc, *stopped) error) chan error {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, cancel, s) }()
	return ended
}

// TestAfterADeletionNothingIsStranded: the consumer is deleted while handlers run,
// and made again. What the one that ends by it has read ahead is with another one of
// the new consumer two seconds after the deletion, and nothing goes to the old one.
func TestAfterADeletionNothingIsStranded(t *testing.T) {
	t.Parallel()
	const messages = 100
	s := newStopped(t)
	s.r.publish(t, messages)
	ended := s.start(func(ctx context.Context, _ context.CancelFunc, s *stopped) error {
		return s.consume(ctx, func() {}, jetpull.Prefetch(2*messages))
	})
	receive(t, s.at, "twenty messages")
	// All have been read ahead, and an open pull waits, by which it hears of the end.
	consumerHas(t, s.r.js, "S", "C", func(i *jetstream.ConsumerInfo) bool { return i.NumPending == 0 && i.NumWaiting > 0 }, "a pull waits")
	at := time.Now()
	require.NoError(t, s.r.js.DeleteConsumer(t.Context(), "S", "C"))
	eventually(t, func() error { // a busy server may still be removing the files of the old one
		_, err := s.r.js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "C", AckWait: time.Minute, MaxAckPending: -1})
		return err
	}, "the consumer is made again")
	var again handed
	other := consume(t, subscribe(t, s.r.js, "S", "C"), func(_ context.Context, m *jetpull.Msg) error {
		again.add(t, m)
		return nil
	})
	again.all(t, messages)
	require.Less(t, time.Since(at), handBackWithin, "since the deletion")
	require.Empty(t, ended, "it waits for its handlers")
	close(s.busy)
	require.ErrorIs(t, receive(t, ended, "the end"), jetpull.ErrConsumerDeleted)
	s.r.ackPending(t, 0)
	other.end(t)
}
