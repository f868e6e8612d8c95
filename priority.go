package jetpull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/transport"
	"github.com/jetpull/jetpull/internal/wire"
)

// PinEvent reports that this client has gained or lost the pin of a priority group with the pinned_client policy
// (ADR-42). It is the last state that the server reported: for a moment after a switch two clients can both assume
// that they are pinned.
type PinEvent struct {
	// Group is the priority group.
	Group string
	// ID is the pin id that was gained or lost.
	ID string
}

// Pin returns the pin id that the Subscription holds in its group, and whether it holds one. Another client may have
// been pinned since.
func (s *Subscription) Pin() (id string, ok bool) {
	if s.driver != nil {
		s.driver.Do(func(e *pull.Engine, _ pull.At) { id = e.PinID(s.defaults.terms.Group) })
	}
	return id, id != ""
}

// pinChanged passes a change of the pin on to the callbacks. It is called before a message of the pin is delivered.
func (s *Subscription) pinChanged(pin pull.Pin) {
	f := s.defaults.onUnpin
	if pin.Gained {
		f = s.defaults.onPin
	}
	waits := pin.Gained && f != nil
	if waits {
		s.calls.pinning.Add(1)
	}
	s.notifier.Post(func() {
		s.defaults.log().Info("jetpull: pin changed", "stream", s.stream, "consumer", s.consumer, "group", pin.Group, "id", pin.ID, "pinned", pin.Gained)
		if f != nil {
			f(PinEvent{Group: pin.Group, ID: pin.ID})
		}
		if waits && s.calls.pinning.Add(-1) == 0 {
			for _, r := range s.openRuns() {
				r.pool.Resume()
			}
		}
	})
}

// giveUpPin gives up the pin that is held in group, so that a stand-by is pinned with the next message and not after the
// priority timeout. An unpin takes the pin from any client, so giveUpPin first reads which client holds it. If it fails, the
// stand-by waits for that timeout. Only one call at a time gives up its pin: a second would take the pin from the next client.
// giveUpPin reports whether the server has answered, and so has received all that was sent before.
func (s *Subscription) giveUpPin(ctx context.Context, group string) bool {
	select {
	case s.calls.unpins <- struct{}{}:
		defer func() { <-s.calls.unpins }()
	case <-ctx.Done():
		return false
	}
	id, stands := "", false
	s.driver.Do(func(e *pull.Engine, _ pull.At) { id, stands = e.PinID(group), e.Stands(group) })
	if id == "" || stands {
		return false
	}
	info, err := s.Info(ctx)
	if err != nil {
		return false
	}
	for _, g := range info.PriorityGroups {
		// The server reports one pin only, under the name of the first group.
		if g.PinnedClientID == id && Unpin(ctx, s.js, s.stream, s.consumer, group) == nil {
			s.driver.Do(func(e *pull.Engine, _ pull.At) { e.PinLost(group, id) })
		}
	}
	return true
}

// Unpin asks the server to take the pin of the Subscription's group from the client that holds it, so that another client
// is pinned with the next message: see [Unpin]. If the pin changed within the last milliseconds, the server may pin a pull
// that has ended; then no client is pinned until the priority timeout.
func (s *Subscription) Unpin(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	return Unpin(ctx, s.js, s.stream, s.consumer, s.defaults.terms.Group)
}

// Unpin asks the server to take the pin of a priority group from the client that holds it (ADR-42). It returns
// an error that matches [ErrNoResponders] if the consumer has no leader that could answer, and the server's
// [jetstream.APIError] if it refuses. Without a deadline on ctx it waits 5 s.
func Unpin(ctx context.Context, js jetstream.JetStream, stream, consumer, group string) error {
	if err := wire.ValidGroup(group); err != nil {
		return invalid("Group", "%v", err)
	}
	if err := checkTarget(ctx, js, stream, consumer); err != nil {
		return err
	}
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	subject := wire.ConsumerSubject(apiPrefix(js), "UNPIN", stream, consumer)
	before, begun := js.Conn().LastError(), time.Now()
	reply, err := js.Conn().RequestWithContext(ctx, subject, fmt.Appendf(nil, `{"group":%q}`, group)) // a valid group is valid JSON
	if err != nil {
		return requestError(js.Conn(), before, begun, "unpin", subject, err)
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return fmt.Errorf("jetpull: unpin: the answer on %s is no JSON: %w", subject, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("jetpull: unpin group %q of consumer %q on stream %q: %w", group, consumer, stream, answer.Error)
	}
	return nil
}

// PinAdvisory is the server's advisory that a priority group has a new pinned client, or has lost its pinned client.
type PinAdvisory struct {
	// Pinned is true if a client was pinned, and false if a client lost its pin.
	Pinned bool
	// Stream, Consumer and Group name the priority group.
	Stream, Consumer, Group string
	// ID is the id of the new pin. It is empty if a client lost its pin.
	ID string `json:"pinned_id"`
	// Reason says why a client lost its pin: "admin" for an unpin request, "timeout" if it did not pull within
	// the priority timeout.
	Reason string
	// Time is when the server sent the advisory.
	Time time.Time `json:"timestamp"`
	// Domain is the JetStream domain, if any.
	Domain string
}

const (
	advisories       = "$JS.EVENT.ADVISORY.CONSUMER."
	pinnedAdvisory   = advisories + "PINNED."
	unpinnedAdvisory = advisories + "UNPINNED."
)

// Advisories yields the pinned and unpinned advisories of a consumer, in the order in which the server sends them, from
// the first step of the loop on. It ends without an error when ctx ends, and with an error when the connection closes. An
// advisory that cannot be decoded is yielded as an error, and the loop continues. So is [nats.ErrSlowConsumer], which means
// that advisories were dropped, because 524,288 of them, or 64 MiB, waited for the loop. Advisories needs the permission to
// subscribe to all advisories of the consumer, and otherwise yields an error that matches [nats.ErrPermissionViolation] and ends.
func Advisories(ctx context.Context, js jetstream.JetStream, stream, consumer string) iter.Seq2[PinAdvisory, error] {
	return func(yield func(PinAdvisory, error) bool) {
		if err := checkTarget(ctx, js, stream, consumer); err != nil {
			yield(PinAdvisory{}, err)
			return
		}
		nc, before := js.Conn(), js.Conn().LastError()
		sub, err := nc.SubscribeSync(advisories + "*." + stream + "." + consumer)
		if err == nil {
			defer func() { _ = sub.Unsubscribe() }() // it fails on a closed connection, where nothing is subscribed
			flushed, cancel := withDefaultTimeout(ctx)
			_, err = transport.Accepted(flushed, nc, before, sub.Subject)
			cancel()
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) { // without a connection, the server decides later
			yield(PinAdvisory{}, fmt.Errorf("jetpull: advisories: %w", closedError(err)))
			return
		}
		for {
			m, err := sub.NextMsgWithContext(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if !yield(PinAdvisory{}, fmt.Errorf("jetpull: advisories: %w", closedError(err))) || !errors.Is(err, nats.ErrSlowConsumer) {
					return
				}
			case strings.HasPrefix(m.Subject, pinnedAdvisory), strings.HasPrefix(m.Subject, unpinnedAdvisory):
				var a PinAdvisory
				err = json.Unmarshal(m.Data, &a)
				a.Pinned = strings.HasPrefix(m.Subject, pinnedAdvisory)
				if err != nil {
					a, err = PinAdvisory{}, fmt.Errorf("jetpull: advisory on %s: %w", m.Subject, err)
				}
				if !yield(a, err) {
					return
				}
			}
		}
	}
}
