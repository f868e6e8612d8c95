package wire

import (
	"strconv"
	"time"
)

// Request is the body of one pull: what to deliver at most, for how long, and under which priority terms. The
// zero value of every field but Batch means that the field is not sent.
type Request struct {
	// Batch is the most messages to deliver. It is always sent.
	Batch int
	// MaxBytes bounds subject, ack reply, headers and payload of all messages delivered together.
	MaxBytes int
	// Expires is how long the server keeps the pull waiting.
	Expires time.Duration
	// NoWait ends the pull as soon as there is nothing more to deliver.
	NoWait bool
	// Heartbeat is the interval of status 100 while nothing is delivered. The
	// server refuses one that is more than half of Expires.
	Heartbeat time.Duration
	// Group is the priority group.
	Group string
	// MinPending is the overflow threshold on messages not yet delivered.
	MinPending int64
	// MinAckPending is the overflow threshold on messages delivered and not yet acknowledged.
	MinAckPending int64
	// ID is the pin id that the server assigned to this client.
	ID string
	// Priority orders pulls under the prioritized policy, 0 to 9, lower first.
	Priority int
}

// Append appends the JSON of r to dst and returns the extended slice. The fields come in a fixed order, so
// equal requests are equal bytes: a no-wait pull is {"batch":n,"no_wait":true} and a long pull begins with
// {"batch":n,"expires":ns. Durations are in nanoseconds.
//
// The body is an object even where nothing but Batch is set: the server takes a bare number or an empty body
// for a pull without a group and then skips its checks on priority groups.
func (r *Request) Append(dst []byte) []byte {
	dst = append(dst, `{"batch":`...)
	dst = strconv.AppendInt(dst, int64(r.Batch), 10)
	dst = appendInt(dst, `,"expires":`, int64(r.Expires))
	if r.NoWait {
		dst = append(dst, `,"no_wait":true`...)
	}
	dst = appendInt(dst, `,"idle_heartbeat":`, int64(r.Heartbeat))
	dst = appendInt(dst, `,"max_bytes":`, int64(r.MaxBytes))
	dst = appendString(dst, `,"group":`, r.Group)
	dst = appendInt(dst, `,"min_pending":`, r.MinPending)
	dst = appendInt(dst, `,"min_ack_pending":`, r.MinAckPending)
	dst = appendInt(dst, `,"priority":`, int64(r.Priority))
	dst = appendString(dst, `,"id":`, r.ID)
	return append(dst, '}')
}

// appendInt appends key and value unless the value is zero.
func appendInt(dst []byte, key string, value int64) []byte {
	if value == 0 {
		return dst
	}
	dst = append(dst, key...)
	return strconv.AppendInt(dst, value, 10)
}

// appendString appends key and value unless the value is empty.
func appendString(dst []byte, key, value string) []byte {
	if value == "" {
		return dst
	}
	dst = append(dst, key...)
	return appendQuoted(dst, value)
}
