package wire

import "strconv"

// Headers that the server sets on status frames and on data. nats.go keeps the
// case of a header as it came, and this is how the server writes them.
const (
	// HeaderStatus and HeaderDescription hold the first line of a status frame, as nats.go decodes it.
	HeaderStatus      = "Status"
	HeaderDescription = "Description"
	// HeaderPendingMsgs and HeaderPendingBytes are what an ended pull had left of its batch and max_bytes.
	HeaderPendingMsgs  = "Nats-Pending-Messages"
	HeaderPendingBytes = "Nats-Pending-Bytes"
	// HeaderPinID comes with data, on the messages delivered under a pin.
	HeaderPinID = "Nats-Pin-Id"
)

// Status is one status frame.
type Status struct {
	Code        int       // three digits, 100 to 999
	Description string    // the text behind the code, empty for a bare 503
	Condition   Condition // the meaning of both
	// What the pull had left when it ended: requested less delivered. Both are zero unless HasPending says that the frame carried good numbers.
	PendingMsgs, PendingBytes int64
	HasPending                bool
}

// ParseStatus reads the header of a status frame. It reports false if there is no three-digit code. The caller
// knows by the frame's subject that it is a status: a stored message may carry any header.
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

// last returns the last value of a header. It is the last that the server wrote: nats.go adds the status line
// behind the headers, and the server adds its own behind those that a user stored.
func last(h map[string][]string, key string) string {
	values := h[key]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// parseCode reads a status code of exactly three digits.
func parseCode(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err == nil && len(s) == 3 && n >= 100
}

// parseCount reads a number that fits an int64 and is not negative.
func parseCount(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil
}
