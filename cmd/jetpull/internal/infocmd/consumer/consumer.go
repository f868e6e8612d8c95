// Package consumer reads a consumer and formats it for jetpull info.
package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// State is a consumer at one moment, with what of its configuration explains the numbers.
type State struct {
	Stream      string    `json:"stream"`
	Consumer    string    `json:"consumer"`
	Time        time.Time `json:"time"`
	PushTo      string    `json:"push_to,omitempty"` // a subject; empty: it is a pull consumer
	Filter      []string  `json:"filter,omitempty"`
	AckPolicy   string    `json:"ack_policy"`
	AckWait     string    `json:"ack_wait,omitempty"`
	MaxPending  int       `json:"max_ack_pending,omitempty"`
	MaxDeliver  int       `json:"max_deliver,omitempty"`
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
	c := info.Config
	s := State{
		Stream: info.Stream, Consumer: info.Name, Time: now.UTC(), PushTo: c.DeliverSubject, Filter: c.FilterSubjects,
		AckPolicy: strings.ToLower(strings.TrimPrefix(c.AckPolicy.String(), "Ack")), MaxPending: max(0, c.MaxAckPending), MaxDeliver: max(0, c.MaxDeliver),
		Pending: info.NumPending, AckPending: info.NumAckPending,
		Redelivered: info.NumRedelivered, Waiting: info.NumWaiting, Paused: info.Paused,
		Delivered: Position{info.Delivered.Consumer, info.Delivered.Stream, info.Delivered.Last},
		AckFloor:  Position{info.AckFloor.Consumer, info.AckFloor.Stream, info.AckFloor.Last},
	}
	if c.FilterSubject != "" {
		s.Filter = []string{c.FilterSubject}
	}
	if c.AckPolicy != jetstream.AckNonePolicy {
		s.AckWait = c.AckWait.String()
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

// Line is the state in one line.
func (s *State) Line() string {
	line := fmt.Sprintf("%s pending %s, ack pending %s, redelivered %s, waiting pulls %s",
		s.Time.Local().Format(time.TimeOnly), progress.Count(s.Pending), progress.Count(s.AckPending), progress.Count(s.Redelivered), progress.Count(s.Waiting))
	if r := s.Rates; r != nil {
		line += fmt.Sprintf(", delivered %.0f/s, acked %.0f/s, pending %+.0f/s", r.Delivered, r.Acked, r.Pending)
	}
	for _, p := range s.Pins {
		line += fmt.Sprintf(", pin of %s: %s", p.Group, cmp.Or(p.ID, "nobody"))
	}
	return line
}
