package wire

import "strconv"

// Headers that the server sets on status frames and on data. nats.go keeps the case of a header as the server writes it, which is this.
const (
	// HeaderStatus and HeaderDescription hold the first line of a status frame, as nats.go decodes it.
	HeaderStatus      = "Status"
	HeaderDescription = "Description"
	// HeaderPendingMsgs and HeaderPendingBytes are the rest of the batch and of max_bytes when a pull ended.
	HeaderPendingMsgs  = "Nats-Pending-Messages"
	HeaderPendingBytes = "Nats-Pending-Bytes"
	// HeaderPinID is set on messages that are delivered under a pin.
	HeaderPinID = "Nats-Pin-Id"
)

// Status is one status frame.
type Status struct {
	Code        int       // three digits, 100 to 999
	Description string    // the text after the code, empty for a bare 503
	Condition   Condition // the meaning of both
	// The rest of the pull when it ended: requested less delivered. Both are zero unless HasPending reports that the frame had valid numbers.
	PendingMsgs, PendingBytes int64
	HasPending                bool
}

// ParseStatus parses the header of a status frame. It returns false if there is no three-digit code. The caller knows from the frame's subject that
// it is a status, because a stored message may have any header.
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

// last returns the last value of a header, which is the server's: nats.go adds the status line after the headers, and the server adds its own headers
// after those that a user stored.
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

// parseCount parses a number that is not negative and fits into an int64.
func parseCount(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil
}
