package store

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/tokens"
	"github.com/jetpull/jetpull/internal/wire"
	"github.com/jetpull/jetpull/relay/internal/machine"
)

// Entry is a message in a queue. It has a copy of the record, which saves a read if the record has not changed since, and the data that the record
// lacks.
type Entry struct {
	Versioned
	// Headers are the headers that the sender has set for the receiver.
	Headers map[string]string `json:"headers,omitempty"`
	// Trace is the sender's traceparent.
	Trace   string `json:"trace,omitempty"`
	Payload []byte `json:"-"`
}

// Encode encodes an entry as a line of JSON and the payload.
func (e *Entry) Encode() ([]byte, error) {
	head, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("write the entry of %q %q: %w", e.Source, e.ID, err)
	}
	return append(append(head, '\n'), e.Payload...), nil
}

// ErrMalformed means that an entry or a record cannot be decoded, so a retry is useless.
var ErrMalformed = errors.New("malformed")

// DecodeEntry decodes the result of Encode.
func DecodeEntry(data []byte) (Entry, error) {
	head, payload, ok := bytes.Cut(data, []byte{'\n'})
	if !ok {
		return Entry{}, fmt.Errorf("%w: no line end", ErrMalformed)
	}
	var e Entry
	if err := cmp.Or(json.Unmarshal(head, &e), check(&e.Record)); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	e.Payload = payload
	return e, nil
}

// Queues are the streams between the workers.
type Queues struct {
	*base
	queues map[Queue]jetstream.Stream
}

// Owner returns the receiver or sender to which an entry belongs in a queue.
func (e *Entry) Owner(q Queue) string {
	if q == ToSender {
		return e.Sender
	}
	return e.Receiver
}

// Enqueue begins to put an entry into a queue, behind those of earlier calls. stored waits until the queue has it, but not for the disk. If the same
// step of a message is enqueued again within two minutes, the server drops the duplicate. After that there are two entries, and the worker of the
// second finds that the record has changed.
func (s *Queues) Enqueue(q Queue, e *Entry) (stored func(context.Context) (seq uint64, err error)) {
	data, err := e.Encode()
	if err != nil {
		return func(context.Context) (uint64, error) { return 0, err }
	}
	source, id := tokens.Subject(e.Source), tokens.Subject(e.ID)
	msgID := source + "." + id + "." + strconv.FormatUint(e.Revision, 36)
	return s.beginWrite(&nats.Msg{Subject: s.subject(q, tokens.Subject(e.Owner(q)), source, id), Data: data}, jetstream.WithMsgID(msgID))
}

// EntryOnDisk returns when an entry of a queue is on disk. Sequence 0 means all entries.
func (s *Queues) EntryOnDisk(ctx context.Context, q Queue, seq uint64) error {
	return s.durable(ctx, s.StreamName(q), seq)
}

// Filter returns the subject of a queue's entries for one receiver or sender: all of them, those of one source, or those of one message.
func (s *Queues) Filter(q Queue, owner string, sourceAndID ...string) string {
	parts := []string{tokens.Subject(owner), "*", "*"}
	for i, of := range sourceAndID {
		parts[i+1] = tokens.Subject(of)
	}
	return s.subject(q, parts...)
}

// PartitionFilter returns the subject of the messages from senders in one partition.
func (s *Queues) PartitionFilter(partition int) string {
	return s.subject(FromSender, strconv.Itoa(partition), ">")
}

// First returns the first entry that a queue has on a subject, or nil. It asks the leader of the stream: the consumer may be gone, and the state in
// this process may be outdated.
func (s *Queues) First(ctx context.Context, q Queue, filter string) (*jetstream.RawStreamMsg, error) {
	m, err := jsstream.Next(ctx, s.js, s.StreamName(q), 1, filter)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return m, jsstream.ReadError(err, "an entry")
}

// Request returns the entry of a message with its headers and payload, from the list of failed messages or a queue. It returns [ErrNotFound] if there
// is none, as for a message that is DONE.
func (s *Store) Request(ctx context.Context, e *Entry) (Entry, error) {
	if e.Status == machine.Failed {
		return s.FailedEntry(ctx, &Item{Receiver: e.Receiver, Source: e.Source, ID: e.ID})
	}
	for _, q := range []Queue{ToReceiver, FromReceiver, ToSender} {
		m, err := s.First(ctx, q, s.Filter(q, e.Owner(q), e.Source, e.ID))
		if err != nil {
			return Entry{}, err
		}
		if m != nil {
			return DecodeEntry(m.Data)
		}
	}
	return Entry{}, ErrNotFound
}

// Durable returns the name of the consumer of a queue's entries for one receiver or sender. If the name would be too long, it has a hash of the owner
// instead.
func (s *Queues) Durable(q Queue, owner string) string {
	name := string(q) + "_" + tokens.Subject(owner)
	if len(name) > wire.MaxName {
		hash := sha256.Sum256([]byte(owner))
		name = string(q) + "_=" + hex.EncodeToString(hash[:])
	}
	return name
}

// PinOf returns the id of the pin that the server has assigned to a reader of the entries for one receiver or sender, or "".
func (s *Queues) PinOf(ctx context.Context, q Queue, owner string) (string, error) {
	info, err := s.consumer(ctx, q, owner)
	for _, group := range info.PriorityGroups {
		return group.PinnedClientID, nil // the server reports one pin for all groups
	}
	return "", err
}

// consumer returns the state of the consumer of the entries for one receiver or sender. It is empty if there is none.
func (s *Queues) consumer(ctx context.Context, q Queue, owner string) (*jetstream.ConsumerInfo, error) {
	consumer, err := s.queues[q].Consumer(ctx, s.Durable(q, owner))
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return &jetstream.ConsumerInfo{}, nil
	case err != nil:
		return &jetstream.ConsumerInfo{}, fmt.Errorf("%w: ask for consumer %s: %w", ErrUnavailable, s.Durable(q, owner), err)
	}
	return consumer.CachedInfo(), nil
}

// Entries counts the entries of a queue.
func (s *Queues) Entries(ctx context.Context, q Queue) (uint64, error) {
	state, err := jsstream.AskState(ctx, s.queues[q])
	return state.Msgs, err
}

// Backlog counts the entries that wait for one receiver or sender, as [Queues.Backlogs] does.
func (s *Queues) Backlog(ctx context.Context, q Queue, owner string) (uint64, error) {
	info, err := s.consumer(ctx, q, owner)
	return waiting(info), err
}

// Backlogs counts the waiting entries of each receiver or sender that has a consumer. Others have no entries, except entries that were stored a
// moment ago.
func (s *Queues) Backlogs(ctx context.Context, q Queue) (map[string]uint64, error) {
	found := map[string]uint64{}
	list := s.queues[q].ListConsumers(ctx)
	for info := range list.Info() {
		rest, own := strings.CutPrefix(info.Config.FilterSubject, s.subject(q)+".")
		token, _, _ := strings.Cut(rest, ".")
		if owner, err := tokens.ParseSubject(token); own && err == nil {
			found[owner] = waiting(info)
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("%w: count the entries of %s: %w", ErrUnavailable, q, err)
	}
	return found, nil
}

// waiting counts the entries of a consumer that are undelivered or unacknowledged.
func waiting(info *jetstream.ConsumerInfo) uint64 {
	return info.NumPending + uint64(info.NumAckPending)
}

// Oldest returns the age of the oldest of n entries of a receiver or sender, or 0 if there is none.
func (s *Queues) Oldest(ctx context.Context, q Queue, owner string, n uint64) (time.Duration, error) {
	if n == 0 {
		return 0, nil
	}
	first, err := s.First(ctx, q, s.Filter(q, owner))
	if err != nil || first == nil {
		return 0, err // it was handled meanwhile
	}
	return max(0, s.Now().Sub(first.Time)), nil
}

// EnsureConsumer creates or updates a durable consumer. On an embedded server, the consumer is in memory: it ends with the server, and the next
// consumer delivers unacknowledged messages at once.
func (s *Queues) EnsureConsumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig) error {
	cfg.MemoryStorage = s.Embedded || s.Storage == jetstream.MemoryStorage
	if _, err := s.js.CreateOrUpdateConsumer(ctx, stream, cfg); err != nil {
		return fmt.Errorf("%w: make consumer %s of %s: %w", ErrUnavailable, cfg.Durable, stream, err)
	}
	return nil
}

// fits reports whether names can be tokens of one subject. Messages that others wrote may have longer names. The server closes the connection at a
// longer subject.
func fits(names ...string) bool {
	length := 0
	for _, name := range names {
		length += len(tokens.Subject(name))
	}
	return length < wire.MaxSubject-256 // the rest is for the other tokens
}

// check refuses a record that the relay has not written, because its code could not handle it.
func check(r *machine.Record) error {
	switch {
	case !fits(r.Source, r.ID, r.Receiver) || !fits(r.Source, r.ID, r.Sender):
		return errors.New("the names of the record are too long")
	case r.Status == machine.Failed && r.Failure == nil:
		return errors.New("the record is FAILED and has no failure")
	}
	return nil
}
