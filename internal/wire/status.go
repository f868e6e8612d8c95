package wire

import "strconv"

// Headers that the server sets on status frames and on messages. nats.go keeps the case of a header, so these have the case that the server uses.
const (
	// HeaderStatus and HeaderDescription hold the first line of a status frame, as nats.go decodes it.
	HeaderStatus      = "Status"
	HeaderDescription = "Description"
	// HeaderPendingMsgs and HeaderPendingBytes are the unused rest of an ended pull's batch and max_bytes.
	HeaderPendingMsgs  = "Nats-Pending-Messages"
	HeaderPendingBytes = "Nats-Pending-Bytes"
	// HeaderPinID is a header of messages that are delivered under a pin.
	HeaderPinID = "Nats-Pin-Id"
)

// Status is one status frame.
type Status struct {
	Code        int       // three digits, 100 to 999
	Description string    // the text after the code, empty for a bare 503
	Condition   Condition // the meaning of both
	// The unused rest of the pull when it ended: requested less delivered. Both are zero unless HasPending: then the frame had valid numbers.
	PendingMsgs, PendingBytes int64
	HasPending                bool
}

// ParseStatus parses the header of a status frame. It reports false if there is no three-digit code. The caller
// must recognize a status by the frame's subject, because a stored message may have any header.
func ParseStatus(h map[string][]string) (Status, bool) {
	code, ok := parseCode(last(h, HeaderStatus))
	if !ok {
		return Status{}, false
	}
	s := Status{Code: code, Description: last(h, HeaderDescription)}
	s.Condition = ConditionOf(code, s.Description)
	msgs, okMsgs := parseCount(last(h, HeaderPendingMsgs))
	bytes, okBytes := parseCount(last(h, HeaderPendingBytes))
	if okMsgs && okBytes {
		s.PendingMsgs, s.PendingBytes, s.HasPending = msgs, bytes, true
	}
	return s, true
}

// PinID returns the pin id in a header, or "" if there is none.
func PinID(h map[string][]string) string {
	return last(h, HeaderPinID)
}

// last returns the last value of a header, which is the server's: nats.go adds the status line after the
// headers, and the server adds its own headers after those that a user stored.
func last(h map[string][]string, key string) string {
	values := h[key]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// parseCode parses a status code of exactly three digits.
func parseCode(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err == nil && len(s) == 3 && n >= 100
}

// parseCount parses a number that fits an int64 and is not negative.
func parseCount(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil
}
