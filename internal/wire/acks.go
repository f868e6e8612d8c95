package wire

import (
	"fmt"
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
)

// Nak returns the payload that hands a message back for redelivery after delay.
func Nak(delay time.Duration) []byte {
	return fmt.Appendf(nil, `%s {"delay":%d}`, VerbNak, int64(delay))
}

// Term returns the payload that ends a message for good. The server puts the reason into its advisory.
func Term(reason string) []byte { return fmt.Appendf(nil, "%s %s", VerbTerm, reason) }
