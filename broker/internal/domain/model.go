// Package domain defines producers, channels, consumers, messages and jobs, the state machine of a job, and the rules for retries and event types.
// Time is an argument. The package does not depend on configuration, HTTP or NATS, and starts no goroutine.
package domain

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	"github.com/jetpull/jetpull/internal/tokens"
)

// Stakeholder has the fields that producers, channels and consumers share. The store holds these types in their JSON form.
type Stakeholder struct {
	ID        string
	Name      string
	Token     string
	CreatedAt time.Time
	ChangedAt time.Time
	// Number is assigned by the store when the object is created. It is unique, never changes, and is larger for younger objects. The first stored
	// JSON has 0, because the number is the revision of that write.
	Number uint32
	// Revision is the store's revision of the object, or 0 if it is not stored yet.
	Revision uint64 `json:"-"`
}

// At returns s with the revision at which it is stored. The first revision of an object is its number.
func (s Stakeholder) At(revision uint64) Stakeholder {
	s.Revision = revision
	s.Number = cmp.Or(s.Number, uint32(revision))
	return s
}

// Producer may broadcast to every channel.
type Producer struct{ Stakeholder }

// Channel is a topic: producers broadcast to it, and its consumers get the messages.
type Channel struct{ Stakeholder }

// ConsumerType is how jobs reach a consumer.
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

// Consumer gets a job for every message that its channel stores after the consumer was created.
type Consumer struct {
	Stakeholder
	Channel     string
	CallbackURL string
	Type        ConsumerType
	// Since is the sequence of the last message before the consumer was created. The consumer has no jobs up to it.
	Since uint64 `json:",omitempty"`
	// Concurrency bounds the callbacks in progress. 0 means the broker's default.
	Concurrency int `json:",omitempty"`
	// RateLimit bounds the callbacks started per second. 0 means no bound.
	RateLimit float64 `json:",omitempty"`
	// EventTypes selects future messages: a comma-separated list of names, or prefixes followed by an asterisk. Empty means all.
	EventTypes string `json:",omitempty"`
	// Filters is the history of EventTypes, which the store maintains. The last one is in force.
	Filters []EventFilter `json:",omitempty"`
	// SigningSecret turns on Standard Webhooks signatures if it is not empty.
	SigningSecret string `json:",omitempty"`
	// Headers are sent with each callback. Their values may be secret.
	Headers map[string]string `json:",omitempty"`
	// Pause holds the jobs back if it has a reason.
	Pause Pause `json:",omitzero"`
}

// The reasons why the jobs of a consumer wait.
const (
	// PausedByOperator means that a request to POST …/pause paused the consumer.
	PausedByOperator = "operator"
	// PausedFailing means that all callbacks failed for the configured time.
	PausedFailing = "failing"
)

// Pause is the reason for a consumer's pause and the time at which it began. It is zero if the consumer is not paused.
type Pause struct {
	Reason string
	At     time.Time
}

// Paused reports whether the consumer's jobs wait.
func (c Consumer) Paused() bool { return c.Pause.Reason != "" }

// Message is a broadcast.
type Message struct {
	// Seq is the position in the store, or 0 if the message is not stored yet.
	Seq         uint64
	ID          string
	Channel     string
	Producer    string
	ContentType string
	// EventType is the type that consumers filter by. It may be empty.
	EventType string
	// Priority is 0 or more. Jobs with a higher priority go first.
	Priority   int
	Headers    map[string]string
	Payload    []byte
	ReceivedAt time.Time
	// Trace is the W3C trace parent of the broadcast, or empty.
	Trace string
}

// Scheduled is a message to broadcast at a later time.
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
	// ChangedAt is when the job entered its status.
	ChangedAt time.Time
	// Due is when a timer acts on the job: the end of an Inflight job's claim, or the next attempt at a Queued job. Zero means never.
	Due time.Time
	// IncrementalTimeout is the timeout that the last claim added to the limit, in whole seconds.
	IncrementalTimeout time.Duration
	// Claim is the token of an exclusive claim, or empty.
	Claim string
	// Attempts is the number of ended callbacks. Took and Code are the duration and status of the last one. Code is 0 if it had no answer.
	Attempts int
	Took     time.Duration
	Code     int
	// Replay is the ID of the last replay that queued the job again, or empty.
	Replay string
	// Revision is the store's revision of the job's record. 0 means that the job has no record, because it is queued and was never tried.
	Revision uint64
}

// Exhausted reports whether the job has used up its retries.
func (j Job) Exhausted(maxRetry int) bool { return j.Retries >= maxRetry }

const (
	maxEventType  = 128  // bytes of an event type, or of a pattern
	maxEventTypes = 2048 // bytes of a list of patterns
)

// EventFilter is the selection of event types for the messages after Since, up to the next filter.
type EventFilter struct {
	Since uint64
	Types string // as [Consumer.EventTypes]
}

// Wants reports whether the consumer gets a message. A change of event types applies to messages that are stored after it.
func (c Consumer) Wants(seq uint64, eventType string) bool {
	types := ""
	for _, f := range c.Filters {
		if seq > f.Since {
			types = f.Types
		}
	}
	return seq > c.Since && MatchesEventType(types, eventType)
}

// MatchesEventType reports whether eventType matches a pattern of types, a list from [ParseEventTypes]. An empty list matches all.
func MatchesEventType(types, eventType string) bool {
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

// ParseEventTypes parses a comma-separated list of event types. A type may end in an asterisk, which matches any suffix. An empty list matches all.
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

// CheckEventType refuses an event type with characters that separate items in lists, patterns or stored headers.
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

// Limits in bytes for values that are stored permanently and that every node holds in memory.
const (
	// MaxText is the limit for an ID, name, token, message ID, content type, or form field without a limit of its own.
	MaxText = 1 << 10
	// MaxLongText is the limit for a callback URL, a list of event types, or a metadata header.
	MaxLongText = 4 << 10
)

// CheckSize refuses a text that is too long. The error does not show the text.
func CheckSize(text string, limit int) error {
	if len(text) > limit {
		return fmt.Errorf("it has %d bytes: give %d at most", len(text), limit)
	}
	return nil
}

// maxTokenLen is the maximum length of an escaped token. With it, a subject with two tokens stays well below the server's limit for a protocol line.
const maxTokenLen = 200

var hashEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// SubjectToken returns an ID as one token of a subject, like [tokens.Subject]. It returns == and a hash for an ID that would become too long, and ==
// for an empty ID.
func SubjectToken(id string) string {
	token := tokens.Subject(id)
	switch {
	case id == "":
		return "=="
	case len(token) > maxTokenLen:
		sum := sha256.Sum256([]byte(id))
		return "==" + hashEncoding.EncodeToString(sum[:])
	}
	return token
}

// Page selects a part of a list, which runs from newest to oldest. At most one of After and Before is set. The zero Page is the first page.
type Page struct {
	// After selects the items that follow this position. They are older.
	After *Position
	// Before selects the items just before this position. They are newer.
	Before *Position
	// Limit is the number of items, at least 1.
	Limit int
}

// Position is a place in a list.
type Position struct {
	At  int64  // the item's time or number, which orders the list
	Seq uint64 // orders items with the same At
}

// StatusCount is the number of a consumer's jobs in a state.
type StatusCount struct {
	Status JobStatus
	Count  int
	Oldest time.Time // when the first of them entered the state
	Newest time.Time // when the last of them entered the state
}

// Backlog is the outstanding work of a consumer.
type Backlog struct {
	Consumer               Consumer
	Queued, Inflight, Dead int
	// Oldest is when the oldest message with outstanding work was received. It is zero if there is none.
	Oldest time.Time
}

// ScheduledCounts counts the scheduled messages of a channel.
type ScheduledCounts struct {
	Pending    int
	Dispatched int
	Next       time.Time // when the next one will be broadcast; zero if there is none
}
