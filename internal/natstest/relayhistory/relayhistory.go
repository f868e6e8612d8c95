// Package relayhistory checks runs of the webhook relay in tests. Its rules hold for any run, whatever was killed: they relate
// the messages that senders submitted, the requests that receivers got, and the results that were reported to senders. A test
// records a [Run] and calls [Run.Check].
package relayhistory

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Traits are the promises of a receiver, and its configuration.
type Traits struct {
	Asked      bool   // it has a status endpoint
	Unknown    string // at_least_once or at_most_once, without a status endpoint
	Order      string // none, source or receiver; empty: none
	Limit      int    // POSTs in a Window; 0: no limit
	Window     time.Duration
	MaxRetries int
	TTL        time.Duration // 0: none
}

// mayFail reports whether a message may fail although its receiver has executed it.
func (t *Traits) mayFail(reason string) bool {
	switch {
	case t.Asked:
		// The status endpoint is not polled beyond the time to live.
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
	Worked  bool // the receiver has executed the message, whether or not its answer arrived
	Overlap bool // another POST was in progress
}

// Receiver is the record of one receiver.
type Receiver struct {
	Traits
	Posts []Post
}

// End is the end of a message as the relay reports it.
type End struct {
	Status   string // DONE or FAILED
	Reason   string
	Response string
}

// Run is the record of a run. The key of a message is its source, a slash and its ID.
type Run struct {
	Receivers map[string]Receiver
	Offered   map[string]string    // the receiver of each submitted message
	Accepted  map[string]bool      // messages whose sender got an answer
	Order     map[string][]string  // of each source, in the order in which they were accepted
	Latest    map[string]time.Time // the latest time at which a POST of a message may arrive, if it has a TTL and was not redriven
	Ends      map[string]End       // of each message that the relay has
	Reported  map[string][]string  // statuses that callbacks reported to the sender, by message
	Redriven  map[string]int       // how often, by message
}

// Tally counts repetitions. They occur only if processes were killed or answers were lost.
type Tally struct {
	Doubles       int // executed POSTs of messages that had been executed before
	Repeats       int // POSTs with the number of the previous one
	ReportedAgain int // callbacks about an end that was already reported
}

// Most is the largest of the counts.
func (t Tally) Most() int { return max(t.Doubles, t.Repeats, t.ReportedAgain) }

type check struct {
	*Run
	tally  Tally
	wrongs []string
}

// Check returns the violations. All messages must have ended.
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
	for key := range r.Reported {
		if _, ok := r.Ends[key]; !ok {
			c.wrong("%s was reported to the sender and is not known", key)
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

// message checks one message: its POSTs, its end, and that this end was reported to the sender.
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

// reported checks that the end was reported to the sender, and no other status except earlier failures.
func (c *check) reported(key string, end End, redriven int) {
	reported := c.Reported[key]
	if !slices.Contains(reported, end.Status) {
		c.wrong("%s is %s, which was not reported to the sender", key, end.Status)
	}
	for _, status := range reported {
		if status != end.Status && (redriven == 0 || status != "FAILED") {
			c.wrong("%s was reported to the sender as %s: it is %s", key, status, end.Status)
		}
	}
	c.tally.ReportedAgain += max(0, len(reported)-1-redriven)
}

// receiver checks the rate window and the order of a receiver.
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
			continue // its sender got no answer, or it was redriven: it has no place in the order
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
