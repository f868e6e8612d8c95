// Package relayhistory checks the history of a run of the webhook relay: which messages senders sent, which requests receivers
// got, and which ends were reported to senders, whatever was killed meanwhile. Tests record a [Run] and call [Run.Check].
package relayhistory

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Traits are what a receiver promises, and how it is configured.
type Traits struct {
	Asked      bool   // it has a status endpoint
	Unknown    string // at_least_once or at_most_once, without a status endpoint
	Order      string // none, source or receiver; empty: none
	Limit      int    // POSTs in a Window; 0: no limit
	Window     time.Duration
	MaxRetries int
	TTL        time.Duration // 0: none
}

// mayFail reports whether a message may still fail after a request for it has succeeded.
func (t *Traits) mayFail(reason string) bool {
	switch {
	case t.Asked:
		// Nobody asks any longer than it lives.
		return t.TTL > 0 && (reason == "EXPIRED" || reason == "UNKNOWN_OUTCOME")
	case t.Unknown == "at_most_once":
		return reason == "UNKNOWN_OUTCOME"
	}
	return true
}

// Post is one POST as its receiver saw it.
type Post struct {
	Key     string
	Attempt int
	At      time.Time
	Worked  bool // the receiver has done what it asks for, whether or not its answer was heard
	Overlap bool // another was in progress
}

// Receiver is what one receiver saw.
type Receiver struct {
	Traits
	Posts []Post
}

// End is how the relay says that a message ended.
type End struct {
	Status   string // DONE or FAILED
	Reason   string
	Response string
}

// Run is what happened. A message's key is its source, a slash and its ID.
type Run struct {
	Receivers map[string]Receiver
	Offered   map[string]string    // the receiver of each message that was handed in
	Accepted  map[string]bool      // those whose sender had an answer
	Order     map[string][]string  // of each source, in the order in which they were accepted
	Latest    map[string]time.Time // when a POST of a message may arrive at the latest, where it has a TTL and is not redriven
	Ends      map[string]End       // of each message that the relay knows
	Told      map[string][]string  // statuses that were reported to the sender, by message
	Redriven  map[string]int       // how often, by message
}

// Tally counts what a run has only where processes were killed or answers got lost.
type Tally struct {
	Doubles int // POSTs that worked, of a message that had worked before
	Repeats int // POSTs with the number of the one before
	Retold  int // callbacks about an end that the sender knew
}

// Most is the largest of the counts.
func (t Tally) Most() int { return max(t.Doubles, t.Repeats, t.Retold) }

type check struct {
	*Run
	tally  Tally
	wrongs []string
}

// Check returns what is wrong. All messages must have ended.
func (r *Run) Check() (Tally, []string) {
	c := &check{Run: r}
	posts := map[string][]Post{}
	for _, receiver := range r.Receivers {
		for _, p := range receiver.Posts {
			posts[p.Key] = append(posts[p.Key], p)
		}
	}
	for key := range posts {
		if _, ok := r.Offered[key]; !ok {
			c.wrong("%s was sent, and nobody has handed it in", key)
		}
	}
	for key, name := range r.Offered {
		end, known := r.Ends[key]
		switch {
		case known:
			c.message(r.Receivers[name].Traits, key, end, posts[key])
		case r.Accepted[key]:
			c.wrong("%s was accepted and is not known", key)
		case len(posts[key]) > 0:
			c.wrong("%s was sent and is not known", key)
		}
	}
	for key := range r.Told {
		if _, ok := r.Ends[key]; !ok {
			c.wrong("the sender was told of %s, which is not known", key)
		}
	}
	for name, receiver := range r.Receivers {
		c.receiver(name, receiver)
	}
	slices.Sort(c.wrongs)
	return c.tally, c.wrongs
}

func (c *check) wrong(format string, args ...any) {
	c.wrongs = append(c.wrongs, fmt.Sprintf(format, args...))
}

// message checks one message: its POSTs, its end, and that this end and no other was reported to the sender.
func (c *check) message(traits Traits, key string, end End, posts []Post) {
	worked, repeats, last, redriven := 0, 0, 0, c.Redriven[key]
	for _, p := range posts {
		if latest, ok := c.Latest[key]; ok && redriven == 0 && p.At.After(latest) {
			c.wrong("%s was sent %v after its time to live", key, p.At.Sub(latest))
		}
		if worked > 0 && traits.Unknown != "at_least_once" {
			c.wrong("%s was POSTed again after it had worked: %+v", key, posts)
		}
		switch {
		case p.Attempt < last && redriven == 0:
			c.wrong("the attempts of %s are out of order: %+v", key, posts)
		case p.Attempt == last:
			repeats++
		}
		if last = p.Attempt; p.Worked {
			worked++
		}
	}
	c.tally.Doubles += max(0, worked-1)
	c.tally.Repeats += repeats
	if most := (traits.MaxRetries + 1) * (redriven + 1); len(posts)-repeats > most {
		c.wrong("%s has more than %d attempts: %+v", key, most, posts)
	}
	switch {
	case end.Status == "DONE" && worked == 0:
		c.wrong("%s is DONE and has not worked", key)
	case end.Status == "DONE" && end.Response != key:
		c.wrong("the response to %s is %q", key, end.Response)
	case end.Status != "DONE" && end.Status != "FAILED":
		c.wrong("%s has not ended: it is %s", key, end.Status)
	case end.Status == "FAILED" && worked > 0 && !traits.mayFail(end.Reason):
		c.wrong("%s has worked and FAILED: %s", key, end.Reason)
	}
	c.reported(key, end, redriven)
}

// reported checks that the end was reported to the sender, and no other status but the failures before it.
func (c *check) reported(key string, end End, redriven int) {
	told := c.Told[key]
	if !slices.Contains(told, end.Status) {
		c.wrong("the sender was not told of %s, which is %s", key, end.Status)
	}
	for _, status := range told {
		if status != end.Status && (redriven == 0 || status != "FAILED") {
			c.wrong("the sender was told that %s is %s: it is %s", key, status, end.Status)
		}
	}
	c.tally.Retold += max(0, len(told)-1-redriven)
}

// receiver checks the window and the order of a receiver.
func (c *check) receiver(name string, r Receiver) {
	posts := slices.Clone(r.Posts)
	slices.SortStableFunc(posts, func(a, b Post) int { return a.At.Compare(b.At) })
	for i := r.Limit; r.Limit > 0 && i < len(posts); i++ {
		if took := posts[i].At.Sub(posts[i-r.Limit].At); took < r.Window {
			c.wrong("%s was sent %d requests within %v: limit %d in %v", name, r.Limit+1, took, r.Limit, r.Window)
		}
	}
	if r.Order == "" || r.Order == "none" {
		return
	}
	turn := map[string]int{}
	for _, keys := range c.Order {
		for i, key := range keys {
			turn[key] = i + 1
		}
	}
	last := map[string]string{}
	for _, p := range posts {
		source, _, _ := strings.Cut(p.Key, "/")
		if turn[p.Key] == 0 || c.Redriven[p.Key] > 0 {
			continue // its sender had no answer, or it was redriven: it has no place in the order
		}
		if turn[p.Key] < turn[last[source]] {
			c.wrong("%s was sent to %s after %s", p.Key, name, last[source])
		}
		last[source] = p.Key
		if r.Order == "receiver" && p.Overlap {
			c.wrong("%s was sent to %s while another was in progress", p.Key, name)
		}
	}
}
