package natstest

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// consumerInfo is the answer to a request for a consumer's info.
type consumerInfo struct {
	Type string `json:"type"`
	jetstream.ConsumerInfo
}

func newConsumerInfo(stream string, cfg jetstream.ConsumerConfig) consumerInfo {
	info := consumerInfo{Type: "io.nats.jetstream.api.v1.consumer_info_response"}
	info.Stream, info.Name, info.Config, info.Created = stream, cfg.Name, cfg, time.Now()
	for _, group := range cfg.PriorityGroups {
		info.PriorityGroups = append(info.PriorityGroups, jetstream.PriorityGroupState{Group: group})
	}
	return info
}

// info answers a request for a consumer's info. The name is stream.consumer.
func (p *Peer) info(name, reply string) {
	p.mu.Lock()
	info, ok := p.handlers.consumers[name]
	p.mu.Unlock()
	if !ok {
		p.ReplyError(reply, 404, jetstream.JSErrCodeConsumerNotFound, "consumer not found")
		return
	}
	info.TimeStamp = time.Now()
	p.ReplyJSON(reply, info)
}

// AckReply is the reply subject of a delivered message in the form with 9
// tokens: how many times it was delivered, its sequence in the stream and in
// the consumer, when it was stored, and how many are left after it.
func AckReply(stream, consumer string, delivered, sseq, cseq uint64, ts time.Time, pending uint64) string {
	return fmt.Sprintf("$JS.ACK.%s.%s.%d.%d.%d.%d.%d", stream, consumer, delivered, sseq, cseq, ts.UnixNano(), pending)
}

// AckReplyV2 is AckReply in the form with 11 tokens, which names the domain
// and the hash of the account; "_" stands for no domain.
func AckReplyV2(domain, account, stream, consumer string, delivered, sseq, cseq uint64, ts time.Time, pending uint64) string {
	return fmt.Sprintf("$JS.ACK.%s.%s.%s.%s.%d.%d.%d.%d.%d", domain, account, stream, consumer, delivered, sseq, cseq, ts.UnixNano(), pending)
}

// ParseAck reads an ack from the subject it was sent to.
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
