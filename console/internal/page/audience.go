package page

import (
	"context"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/requeue"
	"github.com/jetpull/jetpull/internal/wire"
)

// audience is who gets messages: the consumers of all streams. It is not known while NATS does not answer.
func (c *Consumers) audience(ctx context.Context) (all []*consumer, known bool) {
	s := c.latest.Fresh(ctx)
	return s.Value, !s.Stale()
}

// gets reports whether a consumer gets the messages of a subject of its stream.
func (c *consumer) gets(subject string) bool {
	all := filters(c.Config)
	return len(all) == 0 || slices.ContainsFunc(all, func(f string) bool { return wire.Matches(f, subject) })
}

// who are the consumers of a stream that get the messages of a subject.
func who(all []*consumer, stream, subject string) (found []*consumer) {
	for _, one := range all {
		if one.Stream == stream && one.gets(subject) {
			found = append(found, one)
		}
	}
	return found
}

// ownSubject is a subject that one consumer of a stream gets and no other; empty: there is none. Such a subject is a filter of the consumer without
// wildcards.
func ownSubject(all []*consumer, stream, name string) string {
	for _, one := range all {
		for _, f := range filters(one.Config) {
			if one.Stream == stream && one.Name == name && wire.Publishable(f) && len(who(all, stream, f)) == 1 {
				return f
			}
		}
	}
	return ""
}

// names are the names of consumers in a sentence.
func names(all []*consumer, known bool) string {
	var shown []string
	for _, one := range all[:min(len(all), 20)] {
		shown = append(shown, one.key)
	}
	return inSentence("audience", map[string]any{"Known": known, "Shown": shown, "More": len(all) - len(shown)})
}

// onlyField offers that a requeue reaches one consumer only.
var onlyField = choice(nil, "only", "For", options("", "every consumer of the subject", "own", "only the consumer that gave it up"))

// errNoSubject is why a dead letter cannot be requeued for one consumer.
const errNoSubject = requeue.Refusal("its consumer has no subject of its own: give it a filter that no other consumer has, such as requeue.NAME, " +
	"and the stream that subject")

// fates state what each consumer of a stream has done with a message.
func (m *Messages) fates(ctx context.Context, one *jetstream.RawStreamMsg, stream string) *view.Part {
	all, known := m.consumers.audience(ctx)
	list := &view.List{
		Path: "message", Empty: names(nil, known), Columns: view.Texts("Consumer", "This message", "State"),
	}
	letters, complete := m.letters.of(ctx, stream, one.Sequence)
	for _, c := range who(all, stream, one.Subject) {
		fate := view.Word(view.Plain, "waits")
		switch {
		case letters[c.Name] != "":
			fate = view.Word(view.Bad, "given up")
			fate.Href = letters[c.Name]
		case !known:
			fate = view.Word(view.Muted, "not known now")
		case one.Sequence <= c.AckFloor.Stream:
			fate = view.Word(view.Plain, "behind this consumer")
			fate.Title = "The consumer has acknowledged it, has given it up, or began after it."
		case one.Sequence <= c.Delivered.Stream:
			fate = view.Word(view.Plain, "delivered, perhaps not acknowledged")
		}
		list.Add("who-"+c.key,
			c.linked(), fate, c.state.Value())
	}
	list.Found = view.Bounded(len(list.Rows), !known, "consumer") + " of this subject"
	if !complete {
		list.Found += "; not all dead letters were searched for this message"
	}
	return &view.Part{ID: "fates", Title: "Who gets it", List: list}
}

// of are the links to the dead letters of a message, by consumer, of those that are known. Complete states that there are no others.
func (d *DeadLetters) of(ctx context.Context, stream string, seq uint64) (found map[string]string, complete bool) {
	found = map[string]string{}
	s := d.latest.Fresh(ctx)
	others := d.letters(letterStreams{others: s.Value.others})
	complete = !s.Stale() && !others.More && others.Sampled == 0
	for _, in := range s.Value.found {
		complete = complete && in.next == 0 && in.err == nil && in.counted.LastSeq == in.State.LastSeq
		for _, l := range in.letters {
			if l.stream == stream && l.origin == fmt.Sprint(seq) {
				found[l.consumer] = messageLink(in.Config.Name, l.seq).Href
			}
		}
	}
	return found, complete
}
