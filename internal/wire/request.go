package wire

import (
	"encoding/json"
	"time"
)

// Request is the body of one pull: how much to deliver, how long to wait, and the priority terms. A field with the
// zero value is not sent, except for Batch.
type Request struct {
	Batch         int           `json:"batch"`                     // the maximum number of messages; always sent
	Expires       time.Duration `json:"expires,omitempty"`         // how long the server keeps the pull waiting
	NoWait        bool          `json:"no_wait,omitempty"`         // ends the pull when there is nothing more to deliver
	Heartbeat     time.Duration `json:"idle_heartbeat,omitempty"`  // the interval of status 100 while nothing is delivered; at most half of Expires
	MaxBytes      int           `json:"max_bytes,omitempty"`       // the total size of all messages, with subject, ack reply and headers
	Group         string        `json:"group,omitempty"`           // the priority group
	MinPending    int64         `json:"min_pending,omitempty"`     // the overflow threshold on messages not yet delivered
	MinAckPending int64         `json:"min_ack_pending,omitempty"` // the overflow threshold on messages delivered and not yet acknowledged
	Priority      int           `json:"priority,omitempty"`        // for the prioritized policy, 0 to 9, lower first
	ID            string        `json:"id,omitempty"`              // the pin id that the server assigned to this client
}

// JSON returns r as JSON. The fields come in a fixed order, so equal requests are equal bytes: a no-wait pull is
// {"batch":n,"no_wait":true} and a long pull begins with {"batch":n,"expires":ns. Durations are in nanoseconds.
//
// The body is an object even if only Batch is set: the server accepts a bare number or an empty body as a pull
// without a group, and then skips its checks of priority groups.
func (r *Request) JSON() []byte {
	body, _ := json.Marshal(r) // cannot fail: there are only numbers and strings
	return body
}
