package pull

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/jetpull/jetpull/internal/wire"
)

// At is a point in time: the duration since the driver's epoch.
type At = time.Duration

// Limits are the limits of pulls in the consumer's configuration.
type Limits struct {
	Batch   int           // MaxRequestBatch; 0: none
	Expires time.Duration // MaxRequestExpires; 0: none
	Bytes   int           // MaxRequestMaxBytes; 0: none
	Waiting int           // MaxWaiting; 0: unknown
	AckNone bool          // nothing can be handed back
	Pinned  bool          // the priority policy is pinned_client
	Replay  bool          // the replay policy is original: the server pauses as the publishers did
	PinTTL  time.Duration // the priority timeout; 0: the server's default
}

// batch returns n, or the most that one pull may ask for.
func (l *Limits) batch(n int) int { return min(n, cmp.Or(l.Batch, n)) }

// expires returns d, or the longest time that a pull may live.
func (l *Limits) expires(d time.Duration) time.Duration { return min(d, cmp.Or(l.Expires, d)) }

// exceeded reports whether ask alone is over the limits. The server refuses such a pull, so no other call shares it.
func (l *Limits) exceeded(now At, ask *Ask) bool {
	return l.Batch > 0 && ask.Want > l.Batch || l.Bytes > 0 && ask.MaxBytes > l.Bytes ||
		ask.Chosen && l.Expires > 0 && expiresIn(ask.Deadline-now) > l.Expires
}

// pinRefresh is the longest time between pulls of a pinned client: only a pull refreshes a pin.
func (l *Limits) pinRefresh() time.Duration {
	if l.PinTTL == 0 {
		return time.Minute
	}
	return max(l.PinTTL/3, 10*time.Millisecond)
}

// standing returns the expiry of a pull of a standing demand.
func (l *Limits) standing() time.Duration {
	if l.Pinned && l.PinTTL > 0 {
		return l.expires(min(StandingExpires, l.pinRefresh()))
	}
	return l.expires(StandingExpires)
}

// Message is a message of the stream.
type Message interface {
	Sequence() uint64
	Nak() error // hands it back to the server
}

// Mode says when a demand is satisfied.
type Mode uint8

// The modes of a demand.
const (
	Some     Mode = iota // by the first messages, up to Want
	Fill                 // by Want messages
	Standing             // never: it keeps a window on order until it leaves
)

// Terms are the terms of a pull in a priority group, and its heartbeat. Callers with equal terms share pulls.
type Terms struct {
	Group         string
	MinPending    int64
	MinAckPending int64
	Priority      int
	Heartbeat     time.Duration // asked for; 0: by the length of the wait
}

// request is a pull with these terms.
func (t *Terms) request() wire.Request {
	return wire.Request{Group: t.Group, Priority: t.Priority, MinPending: t.MinPending, MinAckPending: t.MinAckPending}
}

// Ask is what one caller wants: up to Want messages, at least one, until a deadline.
type Ask struct {
	Terms    Terms
	Mode     Mode
	Want     int // messages that the caller still wants; unused by a standing demand
	Deadline At  // 0: none
	// Chosen is set if the user chose the wait. The pull then asks for it even if it is over the consumer's limit.
	Chosen   bool
	NoWait   bool
	MaxBytes int // 0: no limit
	// For a standing demand: the initial number of messages that may be held or on order, how many of them are being handled and do not wait,
	// and the bytes that may be held or on order; 0: no bound.
	Window, Workers, Bytes int
}

// The reasons for which a demand ends, or a pull of a standing demand fails. The root package turns them into its
// public errors.
var (
	ErrEmpty  = errors.New("no messages")
	ErrSilent = errors.New("the server did not answer the pull, or stopped in the middle: check the link to the consumer's server; if another " +
		"account exports the stream's API, it needs response_type stream")
	ErrLost = errors.New("the connection was lost while the pull was open")
)

// Timeout says that a demand's deadline has passed, or that its caller has left.
type Timeout struct {
	Cause error // the last problem; nil: there was none
}

func (t *Timeout) Error() string { return "timeout" }

// Refused is a status that ended a pull.
type Refused struct{ Status wire.Status }

func (r *Refused) Error() string {
	return fmt.Sprintf("status %d %s", r.Status.Code, r.Status.Description)
}
