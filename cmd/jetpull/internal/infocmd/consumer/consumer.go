// Package consumer reads a consumer and formats it for jetpull info.
package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/progress"
)

// Info asks for the info of a consumer of any kind.
func Info(ctx context.Context, js jetstream.JetStream, stream, consumer string) (*jetstream.ConsumerInfo, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("stream %q: %w", stream, err)
	}
	c, err := s.Consumer(ctx, consumer)
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		push, pushErr := s.PushConsumer(ctx, consumer)
		if pushErr != nil {
			return nil, fmt.Errorf("consumer %q on stream %q: %w", consumer, stream, pushErr)
		}
		return push.CachedInfo(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %q on stream %q: %w", consumer, stream, err)
	}
	return c.CachedInfo(), nil
}

// State is a consumer at one moment, as --json prints it.
type State struct {
	Stream      string    `json:"stream"`
	Consumer    string    `json:"consumer"`
	Time        time.Time `json:"time"`
	Pending     uint64    `json:"pending"`
	AckPending  int       `json:"ack_pending"`
	Redelivered int       `json:"redelivered"`
	Waiting     int       `json:"waiting_pulls"`
	Delivered   Position  `json:"delivered"`
	AckFloor    Position  `json:"ack_floor"`
	Paused      bool      `json:"paused,omitempty"`
	Pins        []Pin     `json:"pins,omitempty"`
	Rates       *Rates    `json:"rates,omitempty"`
}

// Position is how far a consumer is.
type Position struct {
	Consumer uint64     `json:"consumer_seq"`
	Stream   uint64     `json:"stream_seq"`
	Last     *time.Time `json:"last,omitempty"`
}

// Pin is the client that a priority group is pinned to.
type Pin struct {
	Group string     `json:"group"`
	ID    string     `json:"id,omitempty"`
	Since *time.Time `json:"since,omitempty"`
}

// Observe is the state of a consumer that has this info.
func Observe(info *jetstream.ConsumerInfo, now time.Time) State {
	s := State{
		Stream: info.Stream, Consumer: info.Name, Time: now.UTC(),
		Pending: info.NumPending, AckPending: info.NumAckPending,
		Redelivered: info.NumRedelivered, Waiting: info.NumWaiting, Paused: info.Paused,
		Delivered: Position{info.Delivered.Consumer, info.Delivered.Stream, info.Delivered.Last},
		AckFloor:  Position{info.AckFloor.Consumer, info.AckFloor.Stream, info.AckFloor.Last},
	}
	for _, g := range info.PriorityGroups {
		p := Pin{Group: g.Group, ID: g.PinnedClientID}
		if !g.PinnedTS.IsZero() && p.ID != "" {
			p.Since = &g.PinnedTS
		}
		s.Pins = append(s.Pins, p)
	}
	return s
}

// Print writes the info of a consumer, and its state.
func Print(out io.Writer, info *jetstream.ConsumerInfo, s State) error {
	rows := [][2]string{
		{"consumer", s.Consumer + " on stream " + s.Stream},
		{"kind", kindOf(info)},
		{"filter", cmp.Or(info.Config.FilterSubject, strings.Join(info.Config.FilterSubjects, ", "))},
		{"pending", progress.Count(s.Pending)},
		{"ack pending", progress.Count(s.AckPending)},
		{"redelivered", progress.Count(s.Redelivered)},
		{"waiting pulls", progress.Count(s.Waiting)},
		{"delivered", positionText(s.Delivered, s.Time)},
		{"ack floor", positionText(s.AckFloor, s.Time)},
	}
	if s.Paused {
		rows = append(rows, [2]string{"paused", "yes"})
	}
	for _, p := range s.Pins {
		rows = append(rows, [2]string{"pin of " + p.Group, PinText(p, s.Time)})
	}
	width := 0
	for _, r := range rows {
		width = max(width, len(r[0]))
	}
	var b strings.Builder
	for _, r := range rows {
		if r[1] != "" {
			fmt.Fprintf(&b, "%-*s  %s\n", width, r[0], progress.Readable(r[1]))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func positionText(p Position, now time.Time) string {
	text := fmt.Sprintf("%s (stream sequence %s)", progress.Count(p.Consumer), progress.Count(p.Stream))
	if p.Last != nil {
		text += ", last " + ago(*p.Last, now)
	}
	return text
}

// PinText says who holds a pin, and since when.
func PinText(p Pin, now time.Time) string {
	switch {
	case p.ID == "":
		return "nobody"
	case p.Since == nil:
		return p.ID
	}
	return p.ID + ", since " + ago(*p.Since, now)
}

// ago rounds the time since then for a reader. Clocks of two machines differ, so it
// is never negative.
func ago(then, now time.Time) string {
	d := max(0, now.Sub(then))
	switch {
	case d < time.Minute:
		d = d.Round(100 * time.Millisecond)
	case d < time.Hour:
		d = d.Round(time.Second)
	default:
		d = d.Round(time.Minute)
	}
	return d.String() + " ago"
}

// Rates are changes a second between two looks at a consumer.
type Rates struct {
	Delivered float64 `json:"delivered"`
	Acked     float64 `json:"acked"`
	Pending   float64 `json:"pending"`
}

// Between is the change from one state to the next, nil where it says nothing: no time has passed, or the consumer was
// recreated in between. A message that is delivered and no longer ack pending counts as acknowledged; the ack floor waits
// for the oldest. A redelivery is no new message: of those there are no more than the stream sequence has moved.
func Between(before, after State) *Rates {
	took := after.Time.Sub(before.Time).Seconds()
	if took <= 0 || after.Delivered.Consumer < before.Delivered.Consumer || after.AckFloor.Consumer < before.AckFloor.Consumer {
		return nil
	}
	delivered := float64(after.Delivered.Consumer - before.Delivered.Consumer)
	first := min(delivered, float64(after.Delivered.Stream)-float64(before.Delivered.Stream))
	return &Rates{
		Delivered: delivered / took,
		Acked:     max(0, first-float64(after.AckPending-before.AckPending)) / took,
		Pending:   (float64(after.Pending) - float64(before.Pending)) / took,
	}
}

// Text is the rates in words.
func (r *Rates) Text() string {
	return fmt.Sprintf("delivered %.0f/s, acked %.0f/s, pending %+.0f/s", r.Delivered, r.Acked, r.Pending)
}

func kindOf(info *jetstream.ConsumerInfo) string {
	c := info.Config
	kind := []string{"pull"}
	if c.DeliverSubject != "" {
		kind[0] = "push to " + c.DeliverSubject
	}
	if c.Durable == "" {
		kind = append(kind, "ephemeral")
	}
	kind = append(kind, "ack "+strings.ToLower(strings.TrimPrefix(c.AckPolicy.String(), "Ack")))
	if c.AckPolicy != jetstream.AckNonePolicy {
		kind = append(kind, "ack wait "+c.AckWait.String())
		if c.MaxAckPending > 0 {
			kind = append(kind, fmt.Sprintf("at most %s unacknowledged", progress.Count(c.MaxAckPending)))
		}
	}
	if c.MaxDeliver > 0 {
		kind = append(kind, fmt.Sprintf("at most %d deliveries", c.MaxDeliver))
	}
	return strings.Join(kind, ", ")
}
