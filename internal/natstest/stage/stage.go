// Package stage tests clients in virtual time, with consumer C of stream S on
// a server of package model. It records what the client sends, lets a test
// answer instead of the server, and causes faults.
package stage

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
)

// Config configures a stage. The zero value is a consumer with ack policy explicit on one server that responds at once.
type Config struct {
	// Consumer is the configuration of C.
	Consumer jetstream.ConsumerConfig
	// Model is the server.
	Model model.Config
	// Conn are options of the connection. By default, it reconnects after 50 ms.
	Conn []nats.Option
}

// dumpLines is the maximum number of lines of the model's history that a failing test prints.
const dumpLines = 150

// Stage is the environment of a client's test. Stream S has the subjects "s.>". Methods may be called by all goroutines of the bubble.
type Stage struct {
	T     *testing.T
	Model *model.Model
	Peer  *natstest.Peer
	NC    *nats.Conn
	JS    jetstream.JetStream
	Start time.Time
	// Logs are the lines of its Logger.
	Logs *Logs

	mu       sync.Mutex
	consumer *model.Consumer
	pulls    []Pull
	acks     []Ack
	takePull func(Pull) bool
	loseAck  func(Ack) bool
	take     func(natstest.Op) bool
	deaf     bool
}

// Pull is a pull of the client, and when it arrived.
type Pull struct {
	natstest.Pull
	At time.Time
}

// Ack is an acknowledgement of any kind, and when it arrived.
type Ack struct {
	natstest.Ack
	At time.Time
	// Verb is the first word of the body, or +ACK if it is empty. Arg is the rest.
	Verb, Arg string
	// Seq is the stream sequence.
	Seq int
}

// Run runs a test on a stage in a bubble. The bubble fails if the test leaves a
// goroutine behind.
func Run(t *testing.T, cfg Config, test func(*Stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &Stage{T: t, Model: model.New(t, cfg.Model), Start: time.Now(), Logs: &Logs{}}
		s.Model.AddStream("S", "s.>")
		s.AddConsumer(cfg.Consumer)
		s.Peer = s.Model.Peer()
		s.Peer.Intercept(s.intercept)
		s.NC = s.Connect(cfg.Conn...)
		s.JS = natstest.JetStream(t, s.NC)
		t.Cleanup(func() {
			if t.Failed() {
				lines := strings.SplitAfter(s.Model.Dump(), "\n")
				t.Logf("what happened last:\n%s", strings.Join(lines[max(0, len(lines)-dumpLines):], ""))
			}
		})
		test(s)
	})
}

// Connect opens another connection.
func (s *Stage) Connect(opts ...nats.Option) *nats.Conn {
	s.T.Helper()
	return s.Model.Connect(s.T, append([]nats.Option{nats.ReconnectWait(50 * time.Millisecond), nats.ReconnectJitter(0, 0)}, opts...)...)
}

// AddConsumer creates C, for the first time or again.
func (s *Stage) AddConsumer(cfg jetstream.ConsumerConfig) {
	s.T.Helper()
	cfg.Name = "C"
	c := s.Model.AddConsumer("S", cfg)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.consumer = c
}

// C returns the consumer that AddConsumer created last.
func (s *Stage) C() *model.Consumer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.consumer
}

// Publish stores n messages. The body of each is its sequence.
func (s *Stage) Publish(n int) {
	for range n {
		s.Model.Publish("s.a", nil, []byte(strconv.Itoa(s.Model.Messages("S")+1)))
	}
	synctest.Wait()
}

// PublishTo stores one message and returns its sequence.
func (s *Stage) PublishTo(subject string, header nats.Header, body string) int {
	seq := s.Model.Publish(subject, header, []byte(body))
	synctest.Wait()
	return int(seq)
}

// intercept records what the client sends. It reports whether the test takes the operation over.
func (s *Stage) intercept(op natstest.Op) bool {
	at := time.Now()
	if strings.HasPrefix(op.Subject, "$JS.ACK.") {
		ack, err := natstest.ParseAck(op)
		if err != nil {
			s.T.Error(err)
			return true
		}
		verb, arg, _ := strings.Cut(string(ack.Body), " ")
		if verb == "" {
			verb = "+ACK"
		}
		if s.acked(Ack{Ack: ack, At: at, Verb: verb, Arg: arg, Seq: int(ack.StreamSeq)}) {
			return true
		}
	}
	if pull, ok := natstest.ParsePull(op); ok {
		return s.pulled(Pull{Pull: pull, At: at})
	}
	s.mu.Lock()
	take, deaf := s.take, s.deaf
	s.mu.Unlock()
	return deaf && strings.HasPrefix(op.Subject, "$JS.API.") || take != nil && take(op)
}

func (s *Stage) pulled(p Pull) (taken bool) {
	s.mu.Lock()
	s.pulls = append(s.pulls, p)
	take := s.takePull
	s.mu.Unlock()
	return take != nil && take(p)
}

func (s *Stage) acked(a Ack) (lost bool) {
	s.mu.Lock()
	s.acks = append(s.acks, a)
	lose, deaf := s.loseAck, s.deaf
	s.mu.Unlock()
	return deaf || lose != nil && lose(a)
}

// TakePulls sets which pulls the test takes over. The server does not get them. nil means none.
func (s *Stage) TakePulls(take func(Pull) (taken bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takePull = take
}

// All makes TakePulls take over every pull.
func All(Pull) bool { return true }

// LoseAcks sets which acknowledgements are lost after they are recorded. nil means none.
func (s *Stage) LoseAcks(lose func(Ack) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseAck = lose
}

// Take sets which other messages of clients the test takes over: requests, and messages to streams. nil means none.
func (s *Stage) Take(take func(natstest.Op) (taken bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take = take
}

// Deaf sets whether all acknowledgements and all requests except pulls are lost.
func (s *Stage) Deaf(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = on
}

// Message returns a message of stream S as in its first delivery. A test sends it in response to a pull that it took over. The model's
// consumer does not know of the delivery.
func (s *Stage) Message(seq int) natstest.Data {
	return natstest.Data{
		Subject: "s.a", Body: []byte(strconv.Itoa(seq)),
		AckReply: natstest.AckReply("S", "C", 1, uint64(seq), uint64(seq), s.Start, 0),
	}
}

// Pulls returns the pulls so far.
func (s *Stage) Pulls() []Pull {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pulls)
}

// PullsSince returns the pulls since t.
func (s *Stage) PullsSince(t time.Time) []Pull {
	return slices.DeleteFunc(s.Pulls(), func(p Pull) bool { return p.At.Before(t) })
}

// Acks returns the acknowledgements so far with a verb. If seqs are given, it returns only those of these messages.
func (s *Stage) Acks(verb string, seqs ...int) []Ack {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.acks), func(a Ack) bool {
		return a.Verb != verb || len(seqs) > 0 && !slices.Contains(seqs, a.Seq)
	})
}

// Acked returns the sequences of the acknowledgements with a verb, in the order of their arrival.
func (s *Stage) Acked(verb string) []int {
	var seqs []int
	for _, a := range s.Acks(verb) {
		seqs = append(seqs, a.Seq)
	}
	return seqs
}

// Ops returns the client's operations with a verb, such as SUB or UNSUB, since the peer's log was reset.
func (s *Stage) Ops(verb string) []natstest.Op {
	synctest.Wait()
	return slices.DeleteFunc(s.Peer.Ops(), func(op natstest.Op) bool { return op.Verb != verb })
}

// Elapsed returns the time since the test began.
func (s *Stage) Elapsed() time.Duration { return time.Since(s.Start) }

// Pass lets d pass, and waits until all goroutines of the bubble are blocked.
func Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Crash stops the server without any message, and restarts it after down.
func (s *Stage) Crash(down time.Duration) {
	s.Model.Crash()
	Pass(down)
	s.Model.Start()
	synctest.Wait()
}

// Hush makes the network silent in both directions for d.
func (s *Stage) Hush(d time.Duration) {
	s.Peer.Pause(true)
	Pass(d)
	s.Peer.Pause(false)
	synctest.Wait()
}
