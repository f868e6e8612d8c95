package domain

import "time"

// The kinds of bulk operations on dead jobs of all consumers.
const (
	RequeueKind = "requeue"
	PurgeKind   = "purge"
)

// The reasons why a job is dead.
const (
	Refused  = "REFUSED"   // the last callback was answered with another status than 2xx
	NoAnswer = "NO_ANSWER" // the last callback has no answer
	GivenUp  = "GIVEN_UP"  // a worker of a pull consumer said so, or did not complete the job within any claim
)

// DeadReasons are all reasons.
var DeadReasons = []string{Refused, NoAnswer, GivenUp}

// DeadFilter selects dead jobs of all consumers. Empty fields do not restrict the selection.
type DeadFilter struct {
	// Consumer is the ID of a consumer of any channel, or CHANNEL/CONSUMER.
	Consumer                  string `json:",omitempty"`
	Producer, Message, Reason string `json:",omitempty"`
	// Since and Until bound the time at which a job became dead. Until is exclusive.
	Since, Until time.Time `json:",omitzero"`
}

// TakesConsumer reports whether the filter selects jobs of a consumer.
func (f DeadFilter) TakesConsumer(c Consumer) bool {
	return f.Consumer == "" || f.Consumer == c.ID || f.Consumer == c.Channel+"/"+c.ID
}

// Takes reports whether the filter selects a dead job of a consumer and a message.
func (f DeadFilter) Takes(j Job, c Consumer, m Message) bool {
	return (f.Producer == "" || f.Producer == m.Producer) && (f.Message == "" || f.Message == m.ID) && (f.Reason == "" || f.Reason == DeadReason(j, c))
}

// DeadReason is why a job of a consumer is dead.
func DeadReason(j Job, c Consumer) string {
	switch {
	case c.Type == Pull:
		return GivenUp
	case j.Code == 0:
		return NoAnswer
	}
	return Refused
}
