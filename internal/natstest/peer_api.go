package natstest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// AckReply is the reply subject of a delivered message in the form with 9
// tokens: how many times it was delivered, its sequence in the stream and in
// the consumer, when it was stored, and how many are left after it.
func AckReply(stream, consumer string, delivered, sseq, cseq uint64, ts time.Time, pending uint64) string {
	return fmt.Sprintf("$JS.ACK.%s.%s.%d.%d.%d.%d.%d", stream, consumer, delivered, sseq, cseq, ts.UnixNano(), pending)
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
