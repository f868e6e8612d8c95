package wire

import (
	"strconv"
	"time"
)

// Acknowledgement payloads, published to a message's reply subject. They are
// shared by all callers and must not be written to.
var (
	// VerbAck settles the message.
	VerbAck = []byte("+ACK")
	// VerbNak hands the message back for redelivery.
	VerbNak = []byte("-NAK")
	// VerbProgress restarts the message's ack wait.
	VerbProgress = []byte("+WPI")
	// VerbTerm settles the message as one never to be redelivered.
	VerbTerm = []byte("+TERM")
	// VerbNext settles the message and pulls one more.
	VerbNext = []byte("+NXT")
)

// AppendNak appends the payload that gives a message back for redelivery after
// delay. A delay of zero or less is redelivery at once.
func AppendNak(dst []byte, delay time.Duration) []byte {
	dst = append(dst, VerbNak...)
	if delay <= 0 {
		return dst
	}
	dst = append(dst, ` {"delay":`...)
	dst = strconv.AppendInt(dst, int64(delay), 10)
	return append(dst, '}')
}

// AppendTerm appends the payload that ends a message for good. The server puts
// reason, if there is one, into its advisory.
func AppendTerm(dst []byte, reason string) []byte {
	dst = append(dst, VerbTerm...)
	if reason == "" {
		return dst
	}
	dst = append(dst, ' ')
	return append(dst, reason...)
}

// AppendNext appends the payload that acknowledges a message and pulls by r in the same frame. The pull
// answers to the reply subject of the publish, so the acknowledgement itself is not confirmed.
func AppendNext(dst []byte, r *Request) []byte {
	dst = append(dst, VerbNext...)
	dst = append(dst, ' ')
	return r.Append(dst)
}

// AppendUnpin appends the body of an unpin request for group.
func AppendUnpin(dst []byte, group string) []byte {
	dst = append(dst, `{"group":`...)
	dst = appendQuoted(dst, group)
	return append(dst, '}')
}
