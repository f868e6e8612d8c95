package jetpull

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// script is consumer C of stream S on a peer, in virtual time. Pulls are
// answered as nats-server does, from a stock of messages, unless the test
// answers them itself.
type script struct {
	t     *testing.T
	peer  *natstest.Peer
	nc    *nats.Conn
	js    jetstream.JetStream
	sub   *Subscription
	start time.Time

	mu      sync.Mutex
	answer  func(p natstest.Pull) (done bool)
	stock   int
	seq     uint64
	pin     string
	pulls   []scriptPull
	waiting []*scriptPull
	acks    []natstest.Ack
}

// scriptPull is a pull with the time at which it came.
type scriptPull struct {
	natstest.Pull
	at    time.Time
	left  int
	bytes int // delivered
}

// virtually runs a test in virtual time. The bubble fails if the test leaves a
// goroutine behind.
func virtually(t *testing.T, cfg jetstream.ConsumerConfig, test func(*testing.T, *script), opts ...Option) {
	t.Helper()
	virtuallyOver(t, nil, cfg, test, opts...)
}

// virtuallyOver is virtually over a connection with options.
func virtuallyOver(t *testing.T, conn []nats.Option, cfg jetstream.ConsumerConfig, test func(*testing.T, *script), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, start: time.Now()}
		s.peer = natstest.NewPeer(t)
		s.peer.SetConsumer("S", "C", cfg)
		s.peer.OnPull(s.pulled)
		s.peer.OnAck(func(_ *natstest.Peer, a natstest.Ack) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.acks = append(s.acks, a)
		})
		conn = append([]nats.Option{nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(0, 0)}, conn...)
		s.nc = s.peer.Connect(t, conn...)
		s.js = natstest.JetStream(t, s.nc)
		var err error
		s.sub, err = Subscribe(t.Context(), s.js, "S", "C", opts...)
		require.NoError(t, err)
		t.Cleanup(s.close)
		test(t, s)
	})
}

// close closes the Subscription and looks for what it leaves behind.
func (s *script) close() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := s.sub.Close(ctx)
	if s.t.Failed() {
		return
	}
	require.NoError(s.t, err)
	require.Zero(s.t, s.sub.Stats().Outstanding, "room that never came back")
	require.Empty(s.t, s.sub.engine.inboxes, "inboxes that are still known")
}

func (s *script) pulled(_ *natstest.Peer, p natstest.Pull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pulls = append(s.pulls, scriptPull{Pull: p, at: time.Now()})
	if s.answer == nil || !s.answer(p) {
		s.serve(p)
	}
}

// serve answers a pull as a server does.
func (s *script) serve(p natstest.Pull) {
	w := &scriptPull{Pull: p, at: time.Now(), left: p.Req.Batch}
	s.waiting = append(s.waiting, w)
	s.distribute()
	if !slices.Contains(s.waiting, w) {
		return
	}
	if p.Req.Expires == 0 {
		s.end(w, 404, "No Messages")
		return
	}
	time.AfterFunc(p.Req.Expires, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end(w, 408, "Request Timeout", "Nats-Pending-Messages", strconv.Itoa(w.left), "Nats-Pending-Bytes", "0")
	})
	if p.Req.Heartbeat > 0 {
		s.beat(w)
	}
}

func (s *script) beat(w *scriptPull) {
	time.AfterFunc(w.Req.Heartbeat, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if slices.Contains(s.waiting, w) {
			s.peer.Status(w.Reply, 100, "Idle Heartbeat")
			s.beat(w)
		}
	})
}

// distribute delivers the stock to the pulls that wait.
func (s *script) distribute() {
	for _, w := range slices.Clone(s.waiting) {
		before := w.left
		full := false
		for s.stock > 0 && w.left > 0 {
			size := s.size()
			if full = w.Req.MaxBytes > 0 && w.bytes+size > w.Req.MaxBytes; full || !s.message(w.Reply) {
				break
			}
			w.bytes += size
			s.stock--
			w.left--
		}
		switch {
		case w.left == 0, w.Req.MaxBytes > 0 && w.bytes == w.Req.MaxBytes:
			s.drop(w)
		case full:
			s.end(w, 409, "Message Size Exceeds MaxBytes", "Nats-Pending-Messages", strconv.Itoa(w.left), "Nats-Pending-Bytes", "0")
		case w.left < before && w.Req.NoWait:
			s.end(w, 404, "No Messages")
		}
	}
}

func (s *script) drop(w *scriptPull) bool {
	i := slices.Index(s.waiting, w)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	return i >= 0
}

func (s *script) end(w *scriptPull, code int, desc string, kv ...string) {
	if s.drop(w) {
		s.peer.Status(w.Reply, code, desc, kv...)
	}
}

// stored is the message with a sequence.
func (s *script) stored(seq uint64) natstest.Data {
	return natstest.Data{
		Subject: "s.a", Body: []byte(strconv.FormatUint(seq, 10)),
		AckReply: natstest.AckReply("S", "C", 1, seq, seq, s.start, 0),
	}
}

// size is what the next message counts for.
func (s *script) size() int {
	m := s.stored(s.seq + 1)
	return len(m.Subject) + len(m.AckReply) + len(m.Body)
}

// message delivers the next message to an inbox, if anybody listens there.
func (s *script) message(reply string) bool {
	m := s.stored(s.seq + 1)
	if s.pin != "" {
		m.Header = nats.Header{"Nats-Pin-Id": {s.pin}}
	}
	if !s.peer.Deliver(reply, m) {
		return false
	}
	s.seq++
	return true
}

// publish adds n messages to the stock.
func (s *script) publish(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stock += n
	s.distribute()
}

// answers lets the test answer pulls: done says that it did.
func (s *script) answers(f func(p natstest.Pull) (done bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// silent answers no pull.
func silent(natstest.Pull) bool { return true }

// got returns the pulls so far.
func (s *script) got() []scriptPull {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pulls)
}

// acked returns the stream sequences of the acknowledgements with a verb.
func (s *script) acked(verb string) (seqs []uint64) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.acks {
		if got, _, _ := strings.Cut(string(a.Body), " "); got == verb {
			seqs = append(seqs, a.StreamSeq)
		}
	}
	return seqs
}

// ops counts what the client has sent of a kind since the peer's log was reset.
func (s *script) ops(verb string) (ops []natstest.Op) {
	synctest.Wait()
	for _, op := range s.peer.Ops() {
		if op.Verb == verb {
			ops = append(ops, op)
		}
	}
	return ops
}

// result is what a call in the background returned.
type result struct {
	ms  []*Msg
	err error
	at  time.Duration // since the script began
}

// later makes a call in the background.
func (s *script) later(call func() ([]*Msg, error)) <-chan result {
	ch := make(chan result, 1)
	go func() {
		ms, err := call()
		ch <- result{ms: ms, err: err, at: time.Since(s.start)}
	}()
	synctest.Wait()
	return ch
}

// next is Next in the background.
func (s *script) next(ctx context.Context, opts ...Option) <-chan result {
	return s.later(func() ([]*Msg, error) { return one(s.sub.Next(ctx, opts...)) })
}

// one makes the result of Next one of Fetch, and fails what returns a message
// and an error, or neither.
func one(m *Msg, err error) ([]*Msg, error) {
	switch {
	case m != nil && err != nil:
		return nil, errors.New("a message and an error")
	case m == nil && err == nil:
		return nil, errors.New("neither a message nor an error")
	case m == nil:
		return nil, err
	}
	return []*Msg{m}, nil
}

// unaware makes the engine believe that the connection is there, as if a cut
// came during a call, and leaves no nudge pending that would hide a missing one.
func (s *script) unaware() {
	synctest.Wait()
	e := s.sub.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rules.down = false
	if e.nudged.Swap(false) {
		require.Same(s.t, nudgeFrame, <-e.in)
	}
}

// bodies are the payloads of messages.
func bodies(ms []*Msg) []string {
	var b []string
	for _, m := range ms {
		b = append(b, string(m.Data()))
	}
	return b
}

// after waits, in virtual time, and lets everything settle.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
