// Package measure measures this library against nats.go, and both against what the protocol allows, on one server. It is
// what make bench and the command's bench run; no promise is made for other programs.
package measure

import (
	"context"
	"regexp"

	"github.com/nats-io/nats.go/jetstream"
)

// Case is one question asked of several clients: the same messages, the same consumer configuration, the same link.
type Case struct {
	Name     string
	Title    string
	Words    string                   // the title for the chart and the README, which have no other cases than those with Words
	Messages int                      // per round
	Delayed  bool                     // over the slow link instead of plain loopback
	Once     bool                     // a message delivered twice fails the round
	Consumer jetstream.ConsumerConfig // of the fresh consumer that each round gets
	Rivals   []Contender              // the first is the usual way with nats.go
	Targets  []Target
}

// acked reports whether messages of the case's consumer have to be acknowledged.
func (c *Case) acked() bool { return c.Consumer.AckPolicy != jetstream.AckNonePolicy }

// Contender is one way of doing a case's work.
type Contender struct {
	Name string
	Ours bool
	// Messages, if not 0, replaces the case's number for a contender that would take minutes for it. Its figures are
	// per message, so they stay comparable.
	Messages int
	// Run does the work: set-up, Round.Start, the work itself, Round.Stop, clean-up.
	Run func(ctx context.Context, r *Round) error
	// Play, if not nil, has another process play the whole turn in place of Run.
	Play func(ctx context.Context, t *Turn) (Sample, error)
}

// Target is what a case is to reach. With a Rival it speaks of the ratio of our figure to the rival's, without one of
// our figure alone. Exactly one of AtLeast and AtMost is set.
type Target struct {
	Metric  Metric
	Rival   string
	AtLeast float64
	AtMost  float64
	// Limit, if not 0, is the most a rival's figure counts for: the ideal, where a rival may sit on it.
	Limit float64
}

// Names of contenders that targets refer to.
const (
	rivalNext       = "nats.go jetstream Next"
	rivalLegacyOne  = "nats.go legacy Fetch(1)"
	rivalChan       = "bare ChanSubscribe"
	rivalFetch      = "nats.go jetstream Fetch"
	rivalLegacy     = "nats.go legacy Fetch"
	rivalDoubleAck  = "nats.go DoubleAck, one by one"
	rivalConsume    = "nats.go Consume"
	rivalMessages   = "nats.go Messages().Next"
	rivalSubscribe  = "bare Subscribe, hand-sent pulls"
	rivalPool       = "nats.go Consume + pool of 64"
	oursName        = "jetpull"
	handlerPoolSize = 64
)

// pullTargets are the targets where one message or one batch is asked for at a time: the rate of what has no more than
// nats.go's connection, and less CPU time than nats.go's own way.
func pullTargets(rival string) []Target {
	return []Target{
		{Metric: Rate, Rival: rivalChan, AtLeast: 0.9},
		{Metric: CPUPer, Rival: rival, AtMost: 0.72},
	}
}

// Cases returns all cases in the order of a report.
func Cases() []Case {
	var cases []Case
	cases = append(cases, nextCases()...)
	cases = append(cases, fetchCases()...)
	cases = append(cases, confirmCases()...)
	cases = append(cases, consumeCases()...)
	cases = append(cases, handlerCases()...)
	return cases
}

// Select returns the cases whose name matches, with messages (if not 0) in place of each one's own number.
func Select(name *regexp.Regexp, messages int) []Case {
	var chosen []Case
	for _, c := range Cases() {
		if !name.MatchString(c.Name) {
			continue
		}
		if messages > 0 {
			c.Messages = messages
		}
		chosen = append(chosen, c)
	}
	return chosen
}

// contenders returns ours, if there is one, and then the rivals: the order in which every round runs them.
func (c *Case) contenders() []Contender {
	list := make([]Contender, 0, len(c.Rivals)+1)
	if run, ok := ours[c.Name]; ok {
		list = append(list, Contender{Name: oursName, Ours: true, Run: run})
	}
	return append(list, c.Rivals...)
}
