// Package domain is what the broker is about: producers, channels and consumers, messages and jobs, the state machine of
// a job, the rules of retries and event types. Time is an argument. It knows
// neither configuration nor HTTP nor NATS, and starts nothing.
package domain

import (
	"fmt"
	"strings"
	"time"
)

// Stakeholder is what producers, channels and consumers have in common. As JSON it has what clients see.
type Stakeholder struct {
	ID        string
	Name      string
	Token     string
	CreatedAt time.Time `json:"-"`
	ChangedAt time.Time
	// Number is given by the store when the object is made. It is unique, it
	// never changes, and a younger object has the larger number.
	Number uint32 `json:"-"`
	// Revision is the store's revision of the object, 0 for one not stored yet.
	Revision uint64 `json:"-"`
}

// At returns s as it is stored at a revision, of which the first is its number.
func (s Stakeholder) At(revision uint64) Stakeholder {
	s.Revision = revision
	if s.Number == 0 {
		s.Number = uint32(revision)
	}
	return s
}

// Producer may broadcast to every channel.
type Producer struct{ Stakeholder }

// Channel is what producers broadcast to and consumers listen on.
type Channel struct{ Stakeholder }

// ConsumerType tells how the jobs of a consumer get to it.
type ConsumerType string

// The types of consumers.
const (
	Push ConsumerType = "push"
	Pull ConsumerType = "pull"
)

// ParseConsumerType returns the type called s. An empty s means Push.
func ParseConsumerType(s string) (ConsumerType, error) {
	switch ConsumerType(s) {
	case "", Push:
		return Push, nil
	case Pull:
		return Pull, nil
	}
	return "", fmt.Errorf("consumer type %q is not known: use push or pull", s)
}

// Consumer gets a job for every message of its channel that is stored after it
// was made.
type Consumer struct {
	Stakeholder
	Channel     string `json:"-"`
	CallbackURL string
	Type        ConsumerType
	// Since is the sequence of the last message that the consumer has no job for.
	Since uint64 `json:"-"`
	// Concurrency bounds the callbacks in progress. 0 means the broker's default.
	Concurrency int `json:",omitempty"`
	// RateLimit bounds the callbacks started in a second. 0 means no bound.
	RateLimit float64 `json:",omitempty"`
	// EventTypes are those it gets from now on: names and fronts of names with an asterisk, separated by commas. Empty
	// means all.
	EventTypes string `json:",omitempty"`
	// Filters are the changes of EventTypes, the last of them in force. The store keeps them.
	Filters []EventFilter `json:"-"`
	// SigningSecret turns on Standard Webhooks signatures, if not empty.
	SigningSecret string `json:"-"`
	// Headers are sent with each callback. Their values may be secret.
	Headers map[string]string `json:"-"`
	// Pause has the jobs wait, if it has a reason.
	Pause Pause `json:"-"`
	// FailingSince is when a time of failed callbacks began that lasts, as far as it is
	// stored; zero if they succeed.
	FailingSince time.Time `json:",omitzero"`
}

// The reasons for which the jobs of a consumer wait.
const (
	// PausedByOperator is after POST …/pause.
	PausedByOperator = "operator"
	// PausedFailing is after callbacks have failed for as long as is configured.
	PausedFailing = "failing"
)

// Pause is why and since when the jobs of a consumer wait; zero if they do not.
type Pause struct {
	Reason string
	At     time.Time
}

// Paused tells whether the consumer's jobs wait.
func (c Consumer) Paused() bool { return c.Pause.Reason != "" }

// Message is a broadcast.
type Message struct {
	// Seq is the position in the store, 0 for a message not stored yet.
	Seq         uint64
	ID          string
	Channel     string
	Producer    string
	ContentType string
	// EventType is what the filters of consumers go by; it may be empty.
	EventType string
	// Priority is 0 or more; a job of a higher one goes first.
	Priority   int
	Headers    map[string]string
	Payload    []byte
	ReceivedAt time.Time
	// Trace is the W3C trace parent of the broadcast, if it had one.
	Trace string
	// Unreadable is why a stored message cannot be decoded, now or later. Then it has a sequence, payload and time only.
	Unreadable error
}

// Scheduled is a message that is broadcast at a later time.
type Scheduled struct {
	Message
	For          time.Time
	DispatchedAt time.Time
}

// Job is one message for one consumer.
type Job struct {
	ID       JobID
	Status   JobStatus
	Retries  int
	Priority int
	// ChangedAt is when the job got its status.
	ChangedAt time.Time
	// Due is when something happens by itself: the end of a claim for an
	// Inflight job, the next attempt for a Queued one. Zero means nothing does.
	Due time.Time
	// IncrementalTimeout is what the last claim added to the limit, in whole seconds.
	IncrementalTimeout time.Duration
	// Claim is the token of an exclusive claim, empty if there is none.
	Claim string
	// Attempts is how many callbacks were made and have ended. Took and Code are of the last one: its duration and the
	// status of its answer, 0 if there was none.
	Attempts int
	Took     time.Duration
	Code     int
	// Replay is the ID of the last replay that has queued the job again, empty if none has.
	Replay string
	// Revision is the store's revision of the job's record. 0 means that the
	// job has none and is as it was made: queued, never tried.
	Revision uint64
}

// Exhausted tells whether the job has used up its retries.
func (j Job) Exhausted(maxRetry int) bool { return j.Retries >= maxRetry }

// Seed is what is made at the start, if it is not there. What comes without a token gets a random one.
type Seed struct {
	Producers []Producer
	Channels  []Channel
	Consumers []Consumer
}

const (
	maxEventType  = 128  // bytes of an event type, or of a pattern
	maxEventTypes = 2048 // bytes of a list of patterns
)

// EventFilter is what a consumer gets of the messages that come after Since, up to its next filter.
type EventFilter struct {
	Since uint64
	Types string // as [Consumer.EventTypes]
}

// Wants tells whether the consumer gets a message: a change of its event types holds for what is stored after it.
func (c Consumer) Wants(seq uint64, eventType string) bool {
	types := ""
	for _, f := range c.Filters {
		if seq > f.Since {
			types = f.Types
		}
	}
	return seq > c.Since && matchesEventType(types, eventType)
}

func matchesEventType(types, eventType string) bool {
	if types == "" {
		return true
	}
	for pattern := range strings.SplitSeq(types, ",") {
		front, open := strings.CutSuffix(pattern, "*")
		if open && strings.HasPrefix(eventType, front) || pattern == eventType {
			return true
		}
	}
	return false
}

// ParseEventTypes reads a comma-separated list of event types, of which each may end in an asterisk that stands for
// any rest. An empty list means all.
func ParseEventTypes(s string) (string, error) {
	var patterns []string
	for pattern := range strings.SplitSeq(s, ",") {
		pattern = strings.TrimSpace(pattern)
		if pattern == "" {
			continue
		}
		if err := CheckEventType(strings.TrimSuffix(pattern, "*")); err != nil {
			return "", err
		}
		patterns = append(patterns, pattern)
	}
	list := strings.Join(patterns, ",")
	if len(list) > maxEventTypes {
		return "", fmt.Errorf("%d bytes, at most %d are allowed", len(list), maxEventTypes)
	}
	return list, nil
}

// CheckEventType refuses what could not be told from a list, a pattern or other parts of a stored header.
func CheckEventType(s string) error {
	if len(s) > maxEventType {
		return fmt.Errorf("event type of %d bytes, at most %d are allowed", len(s), maxEventType)
	}
	for _, r := range s {
		if r <= ' ' || r > '~' || strings.ContainsRune(",*{", r) {
			return fmt.Errorf("event type %q has %q: give visible ASCII without comma, asterisk and brace; a pattern may end in one asterisk", s, r)
		}
	}
	return nil
}

// What is stored for ever, and held in memory on every node, is bounded in bytes.
const (
	// MaxText bounds an ID, a name, a token, a message ID, a content type and the fields of a form that have no limit of their own.
	MaxText = 1 << 10
	// MaxLongText bounds a callback URL, a list of event types and a metadata header.
	MaxLongText = 4 << 10
)

// CheckSize refuses a text that is too long. The error does not show it.
func CheckSize(text string, limit int) error {
	if len(text) > limit {
		return fmt.Errorf("it has %d bytes: give %d at most", len(text), limit)
	}
	return nil
}
