package wire

import (
	"encoding/json"
	"time"
)

// Request is the body of one pull: what to deliver at most, for how long, and under which priority terms. The
// zero value of every field but Batch means that the field is not sent.
type Request struct {
	// Batch is the most messages to deliver. It is always sent.
	Batch int `json:"batch"`
	// Expires is how long the server keeps the pull waiting.
	Expires time.Duration `json:"expires,omitempty"`
	// NoWait ends the pull as soon as there is nothing more to deliver.
	NoWait bool `json:"no_wait,omitempty"`
	// Heartbeat is the interval of status 100 while nothing is delivered. The
	// server refuses one that is more than half of Expires.
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	// MaxBytes bounds subject, ack reply, headers and payload of all messages delivered together.
	MaxBytes int `json:"max_bytes,omitempty"`
	// Group is the priority group.
	Group string `json:"group,omitempty"`
	// MinPending is the overflow threshold on messages not yet delivered.
	MinPending int64 `json:"min_pending,omitempty"`
	// MinAckPending is the overflow threshold on messages delivered and not yet acknowledged.
	MinAckPending int64 `json:"min_ack_pending,omitempty"`
	// Priority orders pulls under the prioritized policy, 0 to 9, lower first.
	Priority int `json:"priority,omitempty"`
	// ID is the pin id that the server assigned to this client.
	ID string `json:"id,omitempty"`
}

// JSON returns r as JSON. The fields come in a fixed order, so equal requests are equal bytes: a no-wait pull is
// {"batch":n,"no_wait":true} and a long pull begins with {"batch":n,"expires":ns. Durations are in nanoseconds.
//
// The body is an object even where nothing but Batch is set: the server takes a bare number or an empty body
// for a pull without a group and then skips its checks on priority groups.
func (r *Request) JSON() []byte {
	body, _ := json.Marshal(r) // it cannot fail: there are numbers and strings only
	return body
}
