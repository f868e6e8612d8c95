package wire

import (
	"fmt"
	"strings"
	"time"
)

// AckPrefix is the prefix of the reply subject of every message that a JetStream consumer delivers.
const AckPrefix = "$JS.ACK."

// Ack has the fields of a delivered message's reply subject that a client needs. The server writes two forms:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
//	$JS.ACK.<domain>.<account hash>.<stream>.<consumer>.<delivered>. … .<pending>[.<token>]
type Ack struct {
	Delivered   uint64 // number of deliveries of this message, this one included
	StreamSeq   uint64 // sequence of the message in the stream
	ConsumerSeq uint64 // sequence of this delivery in the consumer
	Timestamp   int64  // when the stream stored the message, in nanoseconds since 1970 UTC
	Pending     uint64 // messages that the consumer still had to deliver; 0 if the number is not decimal or over 18 digits
}

// ParseAck parses the reply subject of a delivered message. It is fastest if the subject begins with prefix: AckPrefix followed by
// stream and consumer. It reports false for a subject of another form, with an empty name, or with a number that is empty, not
// decimal or over 19 digits. The server writes no such number.
func ParseAck(prefix, subject string) (a Ack, ok bool) {
	if rest, found := strings.CutPrefix(subject, prefix); found && prefix != "" && a.parse(rest) {
		return a, true
	}
	rest, found := strings.CutPrefix(subject, AckPrefix)
	names := 2
	switch dots := strings.Count(rest, "."); {
	case !found || dots < 6 || dots == 7:
		return Ack{}, false
	case dots > 7:
		names = 4
	}
	for range names {
		var name string
		if name, rest, _ = strings.Cut(rest, "."); name == "" {
			return Ack{}, false
		}
	}
	if !a.parse(rest) {
		return Ack{}, false
	}
	return a, true
}

// parse parses the numbers at the beginning of s.
func (a *Ack) parse(s string) (ok bool) {
	if a.Delivered, s, ok = number(s); !ok {
		return false
	}
	if a.StreamSeq, s, ok = number(s); !ok {
		return false
	}
	if a.ConsumerSeq, s, ok = number(s); !ok {
		return false
	}
	stored, s, ok := number(s)
	a.Timestamp = int64(stored)
	if n, i := digits(s); i <= 18 && (i == len(s) || s[i] == '.') {
		a.Pending = n
	}
	return ok && a.Timestamp >= 0
}

// number parses a decimal number at the beginning of s, and the dot after it.
func number(s string) (n uint64, rest string, ok bool) {
	n, i := digits(s)
	if i == 0 || i > 19 || i == len(s) || s[i] != '.' {
		return 0, "", false
	}
	return n, s[i+1:], true
}

// digits parses a decimal number at the beginning of s, and returns its length. With more than 19 digits, n is wrong.
func digits(s string) (n uint64, length int) {
	for ; length < len(s) && s[length]-'0' <= 9; length++ {
		n = n*10 + uint64(s[length]-'0')
	}
	return n, length
}

// Acknowledgement payloads, published to a message's reply subject. They are
// shared by all callers and must not be written to.
var (
	VerbAck      = []byte("+ACK")  // settles the message
	VerbNak      = []byte("-NAK")  // hands the message back for redelivery
	VerbProgress = []byte("+WPI")  // restarts the message's ack wait
	VerbTerm     = []byte("+TERM") // settles the message, which is never redelivered
)

// Nak returns the payload that hands a message back for redelivery after delay.
func Nak(delay time.Duration) []byte {
	return fmt.Appendf(nil, `%s {"delay":%d}`, VerbNak, int64(delay))
}

// Term returns the payload that terminates a message. The server puts the reason into its advisory.
func Term(reason string) []byte { return fmt.Appendf(nil, "%s %s", VerbTerm, reason) }
