package jetpull

import (
	"bytes"
	"context"
	"encoding/json"
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

// stage is consumer "C" of stream "S" on a scripted peer in virtual time. It
// delivers to pulls in order, delivers again after a NAK and after AckWait, and
// notes what it is sent. A test can take the pulls over with onPull.
type stage struct {
	t    *testing.T
	peer *natstest.Peer
	nc   *nats.Conn
	js   jetstream.JetStream
	sub  *Subscription
	cfg  jetstream.ConsumerConfig
	logs *logLines

	mu        sync.Mutex
	stored    []natstest.Data
	next      int // sequences from here on were never delivered
	again     []int
	delivered map[int]int
	cseqs     int         // deliveries so far
	cseq      map[int]int // consumer sequence of a message's last delivery
	floor     jetstream.SequenceInfo
	pending   map[int]*time.Timer
	pulls     []*stagePull
	onPull    func(natstest.Pull) (taken bool)
	onAck     func(seq int, verb string)
	deaf      bool // acknowledgements get lost, and questions
	paused    bool
	pullsAt   []time.Time
	beatsAt   []time.Time
	asked     []natstest.PullRequest
	acks      []stageAck
	refused   int // pulls that found nobody
}

// stageStored is when the messages of a stage were stored.
var stageStored = time.Unix(1, 0)

type stageAck struct {
	at   time.Time
	seq  int
	verb string
	arg  string
}

type stagePull struct {
	natstest.Pull
	left, bytes int
	timers      []*time.Timer
}

// onStage runs a test in virtual time on a stage with the given consumer.
func onStage(t *testing.T, cfg jetstream.ConsumerConfig, test func(*testing.T, *stage), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{
			t: t, cfg: cfg, logs: &logLines{},
			delivered: map[int]int{}, cseq: map[int]int{}, pending: map[int]*time.Timer{},
		}
		if s.cfg.AckWait == 0 {
			s.cfg.AckWait = 30 * time.Second
		}
		if s.cfg.AckPolicy == jetstream.AckNonePolicy {
			s.cfg.AckWait = 0
		}
		s.peer = natstest.NewPeer(t)
		s.peer.SetConsumer("S", "C", s.cfg)
		s.peer.OnPull(s.pulled)
		s.peer.OnAck(s.acked)
		if s.cfg.AckPolicy == jetstream.AckAllPolicy {
			s.peer.OnRequest("$JS.API.CONSUMER.INFO.S.C", s.tell)
		}
		s.nc = s.peer.Connect(t, nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
		s.js = natstest.JetStream(t, s.nc)
		s.sub = s.subscribe(opts...)
		test(t, s)
	})
}

func (s *stage) subscribe(opts ...Option) *Subscription {
	s.t.Helper()
	sub, err := Subscribe(s.t.Context(), s.js, "S", "C", opts...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(s.t, sub.Close(ctx))
	})
	return sub
}

// publish stores n messages with the bodies "1", "2", …
func (s *stage) publish(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.store("s.a", nil, strconv.Itoa(len(s.stored)+1))
	}
	s.serve()
}

// publishTo stores one message.
func (s *stage) publishTo(subject string, header nats.Header, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(subject, header, body)
	s.serve()
}

func (s *stage) store(subject string, header nats.Header, body string) {
	s.stored = append(s.stored, natstest.Data{Subject: subject, Header: header, Body: []byte(body)})
}

func (s *stage) pulled(_ *natstest.Peer, p natstest.Pull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pullsAt = append(s.pullsAt, time.Now())
	s.asked = append(s.asked, p.Req)
	if s.onPull != nil && s.onPull(p) {
		return
	}
	s.take(p)
}

// take queues a pull and serves it. The lock is held.
func (s *stage) take(p natstest.Pull) {
	open := &stagePull{Pull: p, left: p.Req.Batch, bytes: p.Req.MaxBytes}
	s.pulls = append(s.pulls, open)
	s.serve()
	if !slices.Contains(s.pulls, open) {
		return
	}
	if p.Req.NoWait && p.Req.Expires == 0 {
		s.end(open, 404, "No Messages")
		return
	}
	open.timers = append(open.timers, time.AfterFunc(p.Req.Expires, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end(open, 408, "Request Timeout")
	}))
	if p.Req.Heartbeat > 0 {
		s.beat(open)
	}
}

func (s *stage) beat(p *stagePull) {
	p.timers = append(p.timers[:min(len(p.timers), 1)], time.AfterFunc(p.Req.Heartbeat, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if slices.Contains(s.pulls, p) && s.peer.Status(p.Reply, 100, "Idle Heartbeat") {
			s.beatsAt = append(s.beatsAt, time.Now())
			s.beat(p)
		}
	}))
}

// end ends a pull with a status. The lock is held.
func (s *stage) end(p *stagePull, code int, desc string) {
	if s.forget(p) {
		s.peer.Status(p.Reply, code, desc,
			"Nats-Pending-Messages", strconv.Itoa(p.left), "Nats-Pending-Bytes", strconv.Itoa(max(0, p.bytes)))
	}
}

// endAll ends all open pulls with a status.
func (s *stage) endAll(code int, desc string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range slices.Clone(s.pulls) {
		s.end(p, code, desc)
	}
}

// forgetAll drops all open pulls without a word.
func (s *stage) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range slices.Clone(s.pulls) {
		s.forget(p)
	}
}

func (s *stage) forget(p *stagePull) bool {
	i := slices.Index(s.pulls, p)
	if i < 0 {
		return false
	}
	s.pulls = slices.Delete(s.pulls, i, i+1)
	for _, timer := range p.timers {
		timer.Stop()
	}
	return true
}

// serve delivers what can be delivered. The lock is held.
func (s *stage) serve() {
	for !s.paused && len(s.pulls) > 0 && (len(s.again) > 0 || s.next < len(s.stored)) {
		if s.cfg.MaxAckPending > 0 && len(s.pending) >= s.cfg.MaxAckPending {
			return
		}
		p := s.pulls[0]
		if !s.peer.HasInterest(p.Reply) {
			s.refused++
			s.forget(p)
			continue
		}
		seq, first := s.next+1, true
		if len(s.again) > 0 {
			seq, first = s.again[0], false
		}
		s.cseq[seq] = s.cseqs + 1
		if p.Req.MaxBytes > 0 && s.size(seq) > p.bytes {
			s.end(p, 409, "Message Size Exceeds MaxBytes")
			continue
		}
		if first {
			s.next++
		} else {
			s.again = s.again[1:]
		}
		s.deliver(p, seq)
	}
}

// size is what a message counts for in the server: subject, reply, headers and
// payload.
func (s *stage) size(seq int) int {
	d := s.stored[seq-1]
	n := len(d.Subject) + len(s.reply(seq)) + len(d.Body)
	for k, v := range d.Header {
		n += len(k) + len(strings.Join(v, "")) + 4
	}
	return n
}

func (s *stage) reply(seq int) string {
	return natstest.AckReply("S", "C", uint64(s.delivered[seq]), uint64(seq), uint64(s.cseq[seq]), stageStored, 0)
}

func (s *stage) deliver(p *stagePull, seq int) {
	s.delivered[seq]++
	s.cseqs++
	d := s.stored[seq-1]
	d.AckReply = s.reply(seq)
	s.peer.Deliver(p.Reply, d)
	if s.cfg.AckPolicy != jetstream.AckNonePolicy {
		// A nanosecond apart, so that they come again in order.
		wait := s.cfg.AckWait + time.Duration(seq)
		s.pending[seq] = time.AfterFunc(wait, func() { s.redeliver(seq) })
	}
	p.bytes -= s.size(seq)
	if p.left--; p.left == 0 || p.Req.MaxBytes > 0 && p.bytes == 0 {
		s.forget(p)
	} else if p.Req.Heartbeat > 0 && len(p.timers) == 2 {
		p.timers[1].Reset(p.Req.Heartbeat)
	}
}

func (s *stage) redeliver(seq int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requeue(seq)
}

// requeue lets a message come again. The lock is held.
func (s *stage) requeue(seq int) {
	if s.pending[seq] != nil && (s.cfg.MaxDeliver <= 0 || s.delivered[seq] < s.cfg.MaxDeliver) {
		s.pending[seq].Stop()
		delete(s.pending, seq)
		s.again = append(s.again, seq)
	}
	s.serve()
}

func (s *stage) acked(_ *natstest.Peer, a natstest.Ack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaf {
		return
	}
	seq := int(a.StreamSeq)
	verb, arg, _ := bytes.Cut(a.Body, []byte(" "))
	if len(verb) == 0 {
		verb = []byte("+ACK")
	}
	s.acks = append(s.acks, stageAck{time.Now(), seq, string(verb), string(arg)})
	if s.onAck != nil {
		s.onAck(seq, string(verb))
	}
	if s.cfg.AckPolicy == jetstream.AckAllPolicy && string(verb) == "+ACK" {
		s.ackedAll(a)
		return
	}
	if string(verb) == "+ACK" || string(verb) == "+TERM" {
		s.again = slices.DeleteFunc(s.again, func(due int) bool { return due == seq })
	}
	timer := s.pending[seq]
	if timer == nil {
		return
	}
	switch string(verb) {
	case "+WPI":
		timer.Reset(s.cfg.AckWait + time.Duration(seq))
	case "-NAK":
		var nak struct {
			Delay time.Duration `json:"delay"`
		}
		if len(arg) > 0 {
			require.NoError(s.t, json.Unmarshal(arg, &nak))
		}
		timer.Stop()
		if nak.Delay == 0 {
			s.requeue(seq)
			return
		}
		s.pending[seq] = time.AfterFunc(nak.Delay, func() { s.redeliver(seq) })
	default:
		timer.Stop()
		delete(s.pending, seq)
		s.serve()
	}
}

// ackedAll settles a message and all before it. Like a server it ignores what
// is not above the last acknowledgement by either sequence. The lock is held.
func (s *stage) ackedAll(a natstest.Ack) {
	if a.DeliverSeq <= s.floor.Consumer || a.StreamSeq <= s.floor.Stream {
		return
	}
	s.floor.Consumer, s.floor.Stream = a.DeliverSeq, a.StreamSeq
	seq := int(a.StreamSeq)
	for earlier, timer := range s.pending {
		if earlier <= seq {
			timer.Stop()
			delete(s.pending, earlier)
		}
	}
	s.again = slices.DeleteFunc(s.again, func(earlier int) bool { return earlier <= seq })
	s.serve()
}

// tell answers a request for the consumer's info.
func (s *stage) tell(p *natstest.Peer, r natstest.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := jetstream.ConsumerInfo{
		Stream: "S", Name: "C", Config: s.cfg, AckFloor: s.floor,
		Delivered:     jetstream.SequenceInfo{Consumer: uint64(s.cseqs), Stream: uint64(s.next)},
		NumAckPending: len(s.pending) + len(s.again), Paused: s.paused,
		NumPending: uint64(len(s.stored) - s.next),
	}
	if info.Delivered.Consumer <= s.floor.Consumer && s.floor.Stream < info.Delivered.Stream {
		// Its store takes these deliveries for old ones.
		info.Delivered = jetstream.SequenceInfo{Stream: s.floor.Stream}
	}
	if s.deaf {
		return
	}
	info.Config.Name = "C"
	p.ReplyJSON(r.Reply, info)
}

// count is how many acknowledgements with a verb came for a message, of any
// for 0.
func (s *stage) count(verb string, seq int) int { return len(s.verbs(verb, seq)) }

func (s *stage) verbs(verb string, seq int) (got []stageAck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.acks {
		if a.verb == verb && (seq == 0 || seq == a.seq) {
			got = append(got, a)
		}
	}
	return got
}

// pullCount is how many pulls came so far.
func (s *stage) pullCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pullsAt)
}

// pullsSince is how many pulls came from t on.
func (s *stage) pullsSince(t time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.pullsAt {
		if !at.Before(t) {
			n++
		}
	}
	return n
}

// unsettled is how many messages are delivered and not settled.
func (s *stage) unsettled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pending)
}

// do runs f under the stage's lock.
func (s *stage) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// pass lets d go by and waits until everything that it brought is done.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// left is how many messages were never delivered.
func (s *stage) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stored) - s.next
}

// forgetQueued drops pulls that nobody waits for any more.
func (s *stage) forgetQueued() {
	for _, p := range slices.Clone(s.pulls) {
		if !s.peer.HasInterest(p.Reply) {
			s.forget(p)
		}
	}
}

// ackedCount is how many messages were acknowledged.
func (s *stage) ackedCount() int {
	done := map[int]bool{}
	for _, a := range s.verbs("+ACK", 0) {
		done[a.seq] = true
	}
	return len(done)
}
