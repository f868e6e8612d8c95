package pull

import (
	"slices"

	"github.com/jetpull/jetpull/internal/wire"
)

// EffectKind is something for the driver to do.
type EffectKind uint8

// The kinds of effects.
const (
	Send        EffectKind = iota // send Pull; before the first of Inbox, subscribe to its Subject
	Unsubscribe                   // drop Inbox: nothing more can arrive on it
	Drain                         // unsubscribe Inbox, and report when nothing more can arrive
	Nak                           // hand Msg back to the server
	Wake                          // Demand is done
	Deliver                       // hand Msgs to the standing Demand; it may be done
	Problem                       // a pull of the standing Demand failed with Err; nil: its pulls are answered again
	PinChanged                    // Pin was gained or lost
	Doubt                         // the consumer may have changed, or be gone
	Prove                         // send requests to the consumer while Proving, and report each: see Answered
)

// Effect is one thing to do. Effects are carried out in order. Among those that wait together, changes of pins come first.
type Effect struct {
	Kind   EffectKind
	Done   bool
	Inbox  *Inbox
	Pull   *wire.Request
	Reply  string // the reply subject of Pull
	Demand *Demand
	Msg    Message
	Msgs   []Message
	Err    error
	Pin    *Pin
}

// Pin is a pin id of a priority group that was gained, or lost.
type Pin struct {
	Group, ID string
	Gained    bool
}

// effects is the queue of effects for the driver.
type effects struct {
	list  []Effect
	spare []Effect // memory of the last batch
}

// changePin adds a change of a pin before all other effects: a Deliver in the queue may hand over messages of that pin.
func (q *effects) changePin(pin Pin) {
	changes := 0
	for changes < len(q.list) && q.list[changes].Kind == PinChanged {
		changes++
	}
	q.list = slices.Insert(q.list, changes, Effect{Kind: PinChanged, Pin: &pin})
}

// do adds an effect.
func (q *effects) do(f Effect) { q.list = append(q.list, f) }

// deliver adds the effect that hands over the messages and the end of a standing demand.
func (q *effects) deliver(d *Demand) {
	if !d.stand.notified {
		d.stand.notified = true
		q.do(Effect{Kind: Deliver, Demand: d})
	}
}

// Effects returns the effects since the last call. done is the result of that call, whose memory it reuses. Messages leave their standing demand
// here, so that the messages of several events are handed over together.
func (e *Engine) Effects(done []Effect) []Effect {
	q := &e.out
	for i := range done {
		if f := &done[i]; f.Kind == Deliver && cap(f.Msgs) > 0 {
			clear(f.Msgs)
			f.Demand.spare = f.Msgs[:0]
		}
	}
	clear(done)
	if done != nil {
		q.spare = done[:0]
	}
	batch := q.list
	if len(batch) == 0 {
		return nil
	}
	q.list, q.spare = q.spare, nil
	for i := range batch {
		if f := &batch[i]; f.Kind == Deliver {
			d := f.Demand
			f.Msgs, f.Done, f.Err = d.Got, d.Done, d.Err
			d.Got, d.spare, d.stand.notified = d.spare, nil, false
		}
	}
	return batch
}
