package natstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	nextPrefix = "$JS.API.CONSUMER.MSG.NEXT."
	ackPrefix  = "$JS.ACK."
)

// Request is a message to a subject of the peer's API.
type Request struct {
	Subject string
	Reply   string
	Header  []byte
	Body    []byte
}

// Pull is a pull request.
type Pull struct {
	// Subject is the subject to which it was sent.
	Subject          string
	Stream, Consumer string
	// Reply is the inbox for messages and statuses.
	Reply string
	// Header as sent, if any.
	Header []byte
	// Body as sent.
	Body []byte
	// Req is the decoded Body. Err is the error if that failed.
	Req PullRequest
	Err error
}

// PullRequest is the body of a pull, as the server decodes it.
type PullRequest struct {
	Batch         int           `json:"batch,omitempty"`
	MaxBytes      int           `json:"max_bytes,omitempty"`
	Expires       time.Duration `json:"expires,omitempty"`
	NoWait        bool          `json:"no_wait,omitempty"`
	Heartbeat     time.Duration `json:"idle_heartbeat,omitempty"`
	Group         string        `json:"group,omitempty"`
	MinPending    int64         `json:"min_pending,omitempty"`
	MinAckPending int64         `json:"min_ack_pending,omitempty"`
	ID            string        `json:"id,omitempty"`
	Priority      int           `json:"priority,omitempty"`
}

// Ack is an acknowledgement of any kind.
type Ack struct {
	// Subject is the whole ack subject.
	Subject string
	// Stream, Consumer and the counters are the tokens of Subject.
	Stream, Consumer      string
	Delivered             uint64
	StreamSeq, DeliverSeq uint64
	// Body is the verb and its arguments; empty means +ACK.
	Body []byte
	// Reply is the subject for the confirmation.
	Reply string
}

// handlers are the functions of a test. The peer's mutex guards them.
type handlers struct {
	intercept  func(Op) bool
	pull       func(*Peer, Pull)
	ack        func(*Peer, Ack)
	requests   []requestHandler
	silentAcks bool
}

type requestHandler struct {
	pattern string
	handle  func(*Peer, Request)
}

// Intercept sets a function that gets each PUB and HPUB of a client first. If
// it returns true, the peer does not handle the operation: it was lost, or the
// test answers it. nil removes the function.
func (p *Peer) Intercept(take func(Op) (taken bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers.intercept = take
}

// OnPull sets the handler of the pulls of all streams and consumers. Without a handler, pulls have no responders.
func (p *Peer) OnPull(handle func(*Peer, Pull)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers.pull = handle
}

// OnAck sets the handler of acks of all kinds.
func (p *Peer) OnAck(handle func(*Peer, Ack)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers.ack = handle
}

// OnRequest sets a handler for messages on subjects that match pattern. Later handlers take precedence over earlier and built-in ones.
func (p *Peer) OnRequest(pattern string, handle func(*Peer, Request)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers.requests = append([]requestHandler{{pattern, handle}}, p.handlers.requests...)
}

// ConfirmAcks sets whether the peer answers an ack that has a reply subject with an empty message, as a server does. The default is on.
func (p *Peer) ConfirmAcks(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers.silentAcks = !on
}

// ReplyJSON answers a request of the JetStream API.
func (p *Peer) ReplyJSON(reply string, answer any) bool {
	body, err := json.Marshal(answer)
	if err != nil {
		p.tb.Errorf("natstest: answer %+v: %v", answer, err)
		return false
	}
	return p.Reply(reply, body)
}

// ReplyError answers a request of the JetStream API with an error.
func (p *Peer) ReplyError(reply string, code int, errCode jetstream.ErrorCode, desc string) bool {
	return p.ReplyJSON(reply, map[string]any{
		"error": map[string]any{"code": code, "err_code": errCode, "description": desc},
	})
}

// publish passes a client's PUB to the handlers if it is for JetStream, or else to the subscriptions.
func (p *Peer) publish(a arrival) {
	op := a.op
	p.mu.Lock()
	h := p.handlers
	p.mu.Unlock()
	if h.intercept != nil && h.intercept(op) {
		return
	}
	for _, r := range h.requests {
		if SubjectMatches(r.pattern, op.Subject) {
			r.handle(p, Request{Subject: op.Subject, Reply: op.Reply, Header: op.Header, Body: op.Body})
			return
		}
	}
	if pull, ok := ParsePull(op); ok && h.pull != nil {
		h.pull(p, pull)
		return
	}
	if strings.HasPrefix(op.Subject, ackPrefix) {
		p.ack(h, op)
		return
	}
	if p.route(a.conn, op.Subject, frame{subject: op.Subject, reply: op.Reply, header: op.Header, body: op.Body}) {
		return
	}
	p.mu.Lock()
	noResponders := a.conn.noResponders
	p.mu.Unlock()
	if op.Reply != "" && noResponders {
		p.NoResponders(op.Reply, op.Subject)
	}
}

// ParsePull parses a PUB or HPUB that is a pull. ok is false for all others.
func ParsePull(op Op) (pull Pull, ok bool) {
	name, found := strings.CutPrefix(op.Subject, nextPrefix)
	if !found {
		return Pull{}, false
	}
	pull = Pull{Subject: op.Subject, Reply: op.Reply, Header: op.Header, Body: op.Body}
	pull.Stream, pull.Consumer, _ = strings.Cut(name, ".")
	pull.Req, pull.Err = parsePullRequest(pull.Body)
	return pull, true
}

// parsePullRequest decodes the body of a pull as the server does. An empty body means one message, a number is a batch size, and all
// others are JSON.
func parsePullRequest(body []byte) (PullRequest, error) {
	body = bytes.TrimSpace(body)
	req := PullRequest{Batch: 1}
	if len(body) == 0 {
		return req, nil
	}
	if body[0] != '{' {
		batch, err := strconv.Atoi(string(body))
		if err != nil {
			return req, fmt.Errorf("natstest: pull %q is neither JSON nor a number: %w", body, err)
		}
		req.Batch = batch
		return req, nil
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return req, fmt.Errorf("natstest: pull %q: %w", body, err)
	}
	if req.Batch == 0 {
		req.Batch = 1
	}
	return req, nil
}

func (p *Peer) ack(h handlers, op Op) {
	ack, err := ParseAck(op)
	if err != nil {
		p.tb.Errorf("natstest: %v", err)
		return
	}
	if h.ack != nil {
		h.ack(p, ack)
	}
	if op.Reply != "" && !h.silentAcks {
		p.Reply(op.Reply, nil)
	}
}

// AckReply returns the reply subject of a delivered message, in the form with
// 9 tokens: how often it was delivered, its stream and consumer sequences, when
// it was stored, and how many messages are pending after it.
func AckReply(stream, consumer string, delivered, sseq, cseq uint64, ts time.Time, pending uint64) string {
	return fmt.Sprintf("$JS.ACK.%s.%s.%d.%d.%d.%d.%d", stream, consumer, delivered, sseq, cseq, ts.UnixNano(), pending)
}

// ParseAck parses an ack from its subject.
func ParseAck(op Op) (Ack, error) {
	if !strings.HasPrefix(op.Subject, ackPrefix) {
		return Ack{}, fmt.Errorf("%q is no ack subject", op.Subject)
	}
	tokens := strings.Split(op.Subject, ".")
	switch {
	case len(tokens) == 9:
		tokens = tokens[2:]
	case len(tokens) >= 11:
		tokens = tokens[4:]
	default:
		return Ack{}, fmt.Errorf("ack subject %q has %d tokens, want 9 or at least 11", op.Subject, len(tokens))
	}
	var numbers [3]uint64
	for i, token := range tokens[2:5] {
		n, err := strconv.ParseUint(token, 10, 64)
		if err != nil {
			return Ack{}, fmt.Errorf("ack subject %q: token %q is no number", op.Subject, token)
		}
		numbers[i] = n
	}
	return Ack{
		Subject: op.Subject, Body: op.Body, Reply: op.Reply,
		Stream: tokens[0], Consumer: tokens[1],
		Delivered: numbers[0], StreamSeq: numbers[1], DeliverSeq: numbers[2],
	}, nil
}
