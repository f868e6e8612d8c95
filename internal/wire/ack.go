package wire

import "strings"

// AckPrefix begins the reply subject of every message that a JetStream consumer delivers.
const AckPrefix = "$JS.ACK."

// Ack has the fields that a client needs of the reply subject of a delivered message. The server writes two forms:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
//	$JS.ACK.<domain>.<account hash>.<stream>.<consumer>.<delivered>. … .<pending>[.<token>]
type Ack struct {
	// Delivered counts the deliveries of this message, this one included.
	Delivered uint64
	// StreamSeq is the sequence of the message in the stream.
	StreamSeq uint64
	// ConsumerSeq is the sequence of this delivery in the consumer.
	ConsumerSeq uint64
	// Timestamp is when the stream stored the message, in nanoseconds since 1970 UTC.
	Timestamp int64
}

// ParseAck reads the reply subject of a delivered message, which is likely to begin with prefix: AckPrefix with stream and
// consumer behind it. It reports false for a subject of another form, with an empty name, or with a number that is empty,
// not decimal or over 19 digits. The server writes no such number.
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

// parse reads the numbers that s begins with.
func (a *Ack) parse(s string) (ok bool) {
	if a.Delivered, s, ok = number(s, 0, 0); !ok {
		return false
	}
	if a.StreamSeq, s, ok = number(s, 0, 0); !ok {
		return false
	}
	if a.ConsumerSeq, s, ok = number(s, 0, 0); !ok {
		return false
	}
	i, stored := 0, uint64(0)
	for ; i+8 <= len(s); i += 8 { // a time has 19 digits
		eight, ok := eightDigits(s[i : i+8])
		if !ok {
			break
		}
		stored = stored*100_000_000 + eight
	}
	stored, _, ok = number(s, i, stored)
	a.Timestamp = int64(stored)
	return ok && a.Timestamp >= 0
}

// number reads the decimal number that s begins with, and the dot behind it. Its first i digits have been read, and are n.
func number(s string, i int, n uint64) (_ uint64, rest string, ok bool) {
	for ; i < len(s) && s[i]-'0' <= 9; i++ {
		n = n*10 + uint64(s[i]-'0')
	}
	if i == 0 || i > 19 || i == len(s) || s[i] != '.' {
		return 0, "", false
	}
	return n, s[i+1:], true
}

// eightDigits reads a number of eight digits in a third of the time: it adds up the digits to pairs, and those to the number.
func eightDigits(s string) (n uint64, ok bool) {
	n = uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	n ^= 0x3030303030303030                                 // of each digit, its value is left
	if (n|(n+0x0606060606060606))&0xf0f0f0f0f0f0f0f0 != 0 { // one is over 9
		return 0, false
	}
	n = n*10 + n>>8
	const pairs = 0x000000ff000000ff
	return (n&pairs*(100+1_000_000<<32) + n>>16&pairs*(1+10_000<<32)) >> 32, true
}
