package wire

import (
	"encoding/json"
	"time"
)

// Request is the body of a pull: the maximum to deliver, for how long, and under which priority terms. Except for Batch, a field that is zero is not
// sent.
type Request struct {
	Batch         int           `json:"batch"`                     // the maximum number of messages to deliver; always sent
	Expires       time.Duration `json:"expires,omitempty"`         // how long the server keeps the pull waiting
	NoWait        bool          `json:"no_wait,omitempty"`         // the pull ends as soon as there is nothing more to deliver
	Heartbeat     time.Duration `json:"idle_heartbeat,omitempty"`  // the interval of status 100 while nothing is delivered; at most half of Expires
	MaxBytes      int           `json:"max_bytes,omitempty"`       // of subject, ack reply, headers and payload of all messages together
	Group         string        `json:"group,omitempty"`           // the priority group
	MinPending    int64         `json:"min_pending,omitempty"`     // the overflow threshold on messages not yet delivered
	MinAckPending int64         `json:"min_ack_pending,omitempty"` // the overflow threshold on messages delivered and not yet acknowledged
	Priority      int           `json:"priority,omitempty"`        // of the prioritized policy, 0 to 9, lower first
	ID            string        `json:"id,omitempty"`              // the pin id that the server assigned to this client
}

// JSON returns r as JSON. The order of the fields is fixed, so that equal requests are equal bytes: a no-wait pull is {"batch":n,"no_wait":true}, and
// a long pull begins with {"batch":n,"expires":ns. Durations are in nanoseconds.
//
// The body is an object even if only Batch is set. The server takes a bare number or an empty body for a pull without a group, and then skips its
// checks of priority groups.
func (r *Request) JSON() []byte {
	body, _ := json.Marshal(r) // numbers and strings can always be encoded
	return body
}
