package wire

import (
	"math"
	"strconv"
	"strings"
)

// AckPrefix begins the reply subject of every message that a JetStream consumer delivers.
const AckPrefix = "$JS.ACK."

// Token counts of an ack subject. The first form has the nine below; the second puts domain and account hash
// before the stream and may end in tokens that a client has no use for:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
//	$JS.ACK.<domain>.<account hash>.<stream>.<consumer>.<delivered>. … .<pending>[.<token>]
//
// Ten tokens are neither.
const (
	ackTokensV1    = 9
	ackTokensV2    = 11
	ackNoDomain    = "_"
	ackTokenPrefix = 2 // "$JS" and "ACK"
)

// Ack is what the server writes into the reply subject of a delivered message.
type Ack struct {
	// Domain is the JetStream domain, empty where the server has none.
	Domain string
	// Stream and Consumer are the names of the message's origin.
	Stream, Consumer string
	// Delivered counts the deliveries of this message, this one included.
	Delivered uint64
	// StreamSeq is the sequence of the message in the stream.
	StreamSeq uint64
	// ConsumerSeq is the sequence of this delivery in the consumer.
	ConsumerSeq uint64
	// Timestamp is when the stream stored the message, in nanoseconds since 1970 UTC.
	Timestamp int64
	// Pending is how many messages were left to deliver behind this one.
	Pending uint64
}

// ParseAck reads the ack subject of a delivered message. It reports false for a subject that is none: another
// prefix or number of tokens, an empty stream or consumer, a number that is empty, not decimal or out of
// range. The names are substrings of subject.
func ParseAck(subject string) (Ack, bool) {
	rest, found := strings.CutPrefix(subject, AckPrefix)
	if !found {
		return Ack{}, false
	}
	tokens := strings.Count(rest, ".") + 1 + ackTokenPrefix

	var a Ack
	switch {
	case tokens == ackTokensV1:
	case tokens >= ackTokensV2:
		a.Domain, rest, _ = strings.Cut(rest, ".")
		_, rest, _ = strings.Cut(rest, ".") // the account
		if a.Domain == ackNoDomain {
			a.Domain = ""
		}
	default:
		return Ack{}, false
	}
	a.Stream, rest, _ = strings.Cut(rest, ".")
	a.Consumer, rest, _ = strings.Cut(rest, ".")
	if a.Stream == "" || a.Consumer == "" {
		return Ack{}, false
	}

	ok := a.parseNumbers(rest)
	return a, ok
}

// ParseAckOf is ParseAck where the subject is likely to begin with prefix, AckPrefix
// with stream and consumer behind it. The names are left out then.
func ParseAckOf(prefix, subject string) (a Ack, ok bool) {
	if rest, found := strings.CutPrefix(subject, prefix); found && a.parseNumbers(rest) {
		return a, true
	}
	return ParseAck(subject)
}

// parseNumbers reads the five numbers that s begins with. It clears a if they are bad.
func (a *Ack) parseNumbers(s string) bool {
	var numbers [5]uint64
	at := 0
	for i := range numbers {
		from, n := at, uint64(0)
		for ; at < len(s) && s[at] != '.'; at++ {
			digit := uint64(s[at]) - '0'
			if digit > 9 {
				*a = Ack{}
				return false
			}
			n = n*10 + digit
		}
		if at <= from || at-from > safeDigits && !fits(s[from:at]) {
			*a = Ack{}
			return false
		}
		numbers[i] = n
		at++ // the dot
	}
	if numbers[3] > math.MaxInt64 {
		*a = Ack{}
		return false
	}
	a.Delivered, a.StreamSeq, a.ConsumerSeq = numbers[0], numbers[1], numbers[2]
	a.Timestamp, a.Pending = int64(numbers[3]), numbers[4]
	return true
}

// safeDigits is how many decimal digits a uint64 has room for, whichever they are.
const safeDigits = 19

// fits reports whether the digits of s are a uint64. The server writes no number that needs this.
func fits(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}
