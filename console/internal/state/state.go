// Package state determines the states of the objects on the console's pages: consumers, sets of partitions, receivers, dead letters, a feed, and the
// sources themselves. Each kind of object has one function. It takes values, reads nothing, and returns the first row of its table that applies. The
// overview, the lists, the pages of objects, the titles and the favicon show its result, and determine no states themselves.
//
// A value that could not be read is [NotKnown]. An object with such a value is red or amber if its other values are. Otherwise its state is not
// known, and never green.
package state

import (
	"cmp"
	"fmt"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
)

// NotKnown is a count or a duration that could not be read.
const NotKnown = -1

// Level is the urgency of a state, most urgent first. The zero Level is Unknown.
type Level int

// The levels.
const (
	Red     Level = iota - 1 // something is wrong
	Unknown                  // it is not known now whether something is wrong
	Amber                    // an operator should look at it
	Green                    // it works
	Idle                     // it has nothing to do
)

// Tone returns the colour of the level.
func (l Level) Tone() view.Tone {
	return []view.Tone{view.Bad, view.Muted, view.Warn, view.Good, view.Plain}[l-Red]
}

// State is the state of an object. The zero State is not known.
type State struct {
	Level Level
	// Word is the state in a list, and Sentence the state on the object's page.
	Word, Sentence string
}

// Value returns the word, with the sentence as its title.
func (s State) Value() view.Value {
	v := view.Word(s.Level.Tone(), cmp.Or(s.Word, "not known"))
	v.Title = s.Sentence
	return v
}

// Trouble reports whether an operator must look at the object. An unknown object counts, because there may be a reason to.
func (s State) Trouble() bool { return s.Level <= Amber }

// Sum returns the combined state of many objects. noun is the word for one object.
func Sum(noun string, all []State) State {
	n := map[Level]uint64{}
	for _, s := range all {
		n[s.Level]++
	}
	of := view.Count(uint64(len(all)), noun)
	rest := ""
	if n[Red] > 0 && n[Amber] > 0 {
		rest += fmt.Sprintf(" %d more should be looked at.", n[Amber])
	}
	if n[Unknown] > 0 {
		rest += fmt.Sprintf(" The state of %d is not known now.", n[Unknown])
	}
	switch {
	case len(all) == 0:
		return State{Idle, "none", "There is no " + noun + "."}
	case n[Red] > 0:
		return State{Red, "in trouble", fmt.Sprintf("%d of %s %s in trouble.", n[Red], of, view.Is(n[Red])) + rest}
	case n[Amber] > 0:
		return State{Amber, "look at it", fmt.Sprintf("%d of %s should be looked at.", n[Amber], of) + rest}
	case n[Unknown] > 0:
		return State{Unknown, "not known", fmt.Sprintf("The state of %d of %s is not known now.", n[Unknown], of)}
	}
	return State{Green, "healthy", "Healthy: all of " + of + " work or are idle."}
}

// Source is a system that the console reads.
type Source struct {
	Name string
	// Answered is when it last answered, or zero. Failing is since when its requests fail, or zero if the last one did not. Took is how long the last
	// answer took.
	Answered, Failing time.Time
	Took              time.Duration
}

// The limits of a source.
const (
	Away = 10 * time.Second // a source without an answer for this long is red
	Late = 2 * time.Second  // an answer that takes this long is amber
)

// Of returns the state of the source at a time.
func (s Source) Of(now time.Time) State {
	away := !s.Failing.IsZero()
	switch {
	case away && now.Sub(s.Failing) >= Away:
		return State{Red, "away", fmt.Sprintf("%s does not answer. The first request without an answer began %s.", s.Name, view.At(s.Failing))}
	case s.Answered.IsZero():
		return State{Unknown, "not known", s.Name + " has not answered yet."}
	case away:
		return State{Amber, "late", fmt.Sprintf("%s did not answer the last request.", s.Name)}
	case s.Took >= Late:
		return State{Amber, "late", fmt.Sprintf("%s took %s to answer.", s.Name, view.Span(s.Took))}
	}
	return State{Green, "answers", s.Name + " answers."}
}

// Letters are the dead letters of an account, or of a stream.
type Letters struct {
	// Unseen is the number of dead letters that nobody has looked at, and Seen the number of the others.
	Unseen, Seen int
	// More reports whether there may be others that were not counted.
	More bool
	// Sampled is the number of other streams of which only some messages were read, and none was a dead letter.
	Sampled int
}

// Of returns the state of the dead letters.
func (l Letters) Of() State {
	found := State{Green, "none", "No dead letter was found."}
	if l.Seen > 0 {
		found = State{Idle, "looked at", "Somebody has looked at all of " + view.Count(uint64(l.Seen), "dead letter") + "."}
	}
	switch {
	case l.Unseen > 0:
		return State{Red, "dead letters", view.Bounded(l.Unseen, l.More, "dead letter") + " that nobody has looked at."}
	case l.More:
		return State{Unknown, "not known", "Not all streams could be searched for dead letters."}
	case l.Sampled > 0:
		return State{Idle, found.Word, fmt.Sprintf("%s In %s the first, the last and some messages were looked at.", found.Sentence,
			view.Count(uint64(l.Sampled), "stream"))}
	}
	return found
}

// waits describes how many messages or jobs have not been delivered yet.
func waits(n uint64, noun string) string {
	switch n {
	case 0:
		return "none waits"
	case 1:
		return "1 " + noun + " waits"
	}
	return view.Count(n, noun) + " wait"
}
