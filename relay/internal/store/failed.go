package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/registry"
	"github.com/jetpull/jetpull/internal/tokens"
	"github.com/jetpull/jetpull/relay/internal/machine"
)

const (
	headerFailed  = "Relay-Failed"  // the Item of a message, as JSON
	headerSettled = "Relay-Settled" // the message is off the list: redriven, skipped or purged
	// settledTTL is how long the notice that a message left the list is stored, for processes that read it late.
	settledTTL = time.Hour
)

// Item is a failed message on the list.
type Item struct {
	Seq      uint64         `json:"-"`
	Source   string         `json:"source"`
	ID       string         `json:"id"`
	Receiver string         `json:"receiver"`
	Stage    machine.Stage  `json:"stage"`
	Reason   machine.Reason `json:"reason"`
	Error    string         `json:"error,omitempty"`
	Time     time.Time      `json:"time"`
	Attempts int            `json:"attempts"`
	// Redrives is the number of earlier redrives.
	Redrives int `json:"redrives,omitempty"`
}

// Filter selects failed messages. Zero fields match all.
type Filter struct {
	Receiver string         `json:"receiver,omitempty"`
	Source   string         `json:"source,omitempty"`
	Message  string         `json:"message,omitempty"`
	Stage    machine.Stage  `json:"stage,omitempty"`
	Reason   machine.Reason `json:"reason,omitempty"`
	Since    time.Time      `json:"since,omitzero"`
	Until    time.Time      `json:"until,omitzero"` // exclusive
}

// Match reports whether an item matches the filter.
func (f *Filter) Match(i *Item) bool {
	return (f.Receiver == "" || f.Receiver == i.Receiver) && (f.Source == "" || f.Source == i.Source) &&
		(f.Message == "" || f.Message == i.ID) && (f.Stage == "" || f.Stage == i.Stage) && (f.Reason == "" || f.Reason == i.Reason) &&
		(f.Since.IsZero() || !i.Time.Before(f.Since)) && (f.Until.IsZero() || i.Time.Before(f.Until))
}

// Failed has the failed messages, and the operations on them.
type Failed struct {
	*base
	Operations *bulk.Table
	failed     jetstream.Stream
	index      failedIndex
	feed       jsstream.Feed // the reader of the list
}

// failedIndex is the list of failed messages in memory.
type failedIndex struct {
	mu        sync.Mutex
	bySubject map[string]*listed
	order     []*listed      // by sequence; includes items that are off the list
	depth     map[string]int // of the list, by receiver
}

type listed struct {
	Item
	subject string
	off     bool // not on the list any more
}

// clear empties the list. It must be called before the first use of a zero failedIndex.
func (x *failedIndex) clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bySubject, x.order, x.depth = map[string]*listed{}, nil, map[string]int{}
}

// drop removes a message from the list. The caller holds the lock.
func (x *failedIndex) drop(l *listed) {
	l.off = true
	delete(x.bySubject, l.subject)
	if x.depth[l.Receiver]--; x.depth[l.Receiver] == 0 {
		delete(x.depth, l.Receiver)
	}
}

// add replaces the earlier item of a subject. If item is nil, the earlier one is only removed.
func (x *failedIndex) add(subject string, item *Item) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if earlier := x.bySubject[subject]; earlier != nil {
		x.drop(earlier)
	}
	if item != nil {
		one := &listed{Item: *item, subject: subject}
		x.bySubject[subject] = one
		x.depth[item.Receiver]++
		x.order = append(x.order, one)
	}
	if len(x.order) > 64 && len(x.order) > 2*len(x.bySubject) {
		x.order = slices.DeleteFunc(x.order, func(l *listed) bool { return l.off })
	}
}

// forget removes the items that failed before a time from the front of the list. The stream has removed their messages.
func (x *failedIndex) forget(before time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.order) > 0 && (x.order[0].off || x.order[0].Time.Before(before)) {
		if !x.order[0].off {
			x.drop(x.order[0])
		}
		x.order = x.order[1:]
	}
}

func (x *failedIndex) place(seq uint64) int {
	place, _ := slices.BinarySearchFunc(x.order, seq, func(l *listed, seq uint64) int { return cmp.Compare(l.Seq, seq) })
	return place
}

// list returns matching items, the newest first, with sequences below before; 0: from the newest on. With limit 0 it returns all.
func (x *failedIndex) list(f Filter, before uint64, limit int) []Item {
	x.mu.Lock()
	defer x.mu.Unlock()
	end := len(x.order)
	if before > 0 {
		end = x.place(before)
	}
	var found []Item
	for _, l := range slices.Backward(x.order[:end]) {
		if l.off || !f.Match(&l.Item) {
			continue
		}
		found = append(found, l.Item)
		if len(found) == limit {
			break
		}
	}
	return found
}

// followFailed starts to read the list, and waits until it is complete, because an operation must not end before it has seen all messages.
func (s *Failed) followFailed(ctx, run context.Context) error {
	s.index.clear()
	s.feed = jsstream.Feed{
		JS: s.js, Stream: s.failed, Reader: s.reader, HeadersOnly: true, Shared: !s.Embedded, See: s.failedChanged,
		Seen: jsstream.NewProgress(), Log: s.Logger, Replaced: s.index.clear,
		SetBack: func(context.Context) error { s.index.clear(); return nil },
	}
	if err := jsstream.Follow(ctx, run, &s.running, s.feed); err != nil {
		return fmt.Errorf("read the failed messages: %w", err)
	}
	return nil
}

func (s *Failed) failedChanged(m *nats.Msg, meta *nats.MsgMetadata) {
	item := ReadItem(m.Header, meta.Sequence.Stream)
	if item == nil && m.Header.Get(headerSettled) == "" {
		s.Logger.Warn("a message in the stream of failed messages cannot be decoded, and is ignored", "subject", m.Subject, "sequence",
			meta.Sequence.Stream)
	}
	s.index.add(m.Subject, item)
}

// ReadItem decodes the item of a message. It returns nil if the message is off the list.
func ReadItem(h nats.Header, seq uint64) *Item {
	item := &Item{Seq: seq}
	if h.Get(headerSettled) != "" || json.Unmarshal([]byte(h.Get(headerFailed)), item) != nil || item.Redrives < 0 ||
		!fits(item.Source, item.ID, item.Receiver) {
		return nil
	}
	return item
}

func (s *Failed) failedSubject(i *Item) string {
	return s.subject(FailedMessages, tokens.Subject(i.Receiver), tokens.Subject(i.Source), tokens.Subject(i.ID))
}

// PutFailed puts a message whose record is FAILED on the list, with its payload, and returns when that is on disk.
func (s *Failed) PutFailed(ctx context.Context, e *Entry) error {
	item := Item{
		Source: e.Source, ID: e.ID, Receiver: e.Receiver, Time: e.EndedAt, Attempts: e.Attempt, Redrives: e.Generation,
		Stage: e.Failure.Stage, Reason: e.Failure.Reason, Error: e.Failure.Error,
	}
	head, err := json.Marshal(item)
	if err != nil {
		return fmt.Errorf("write the failed message %q %q: %w", e.Source, e.ID, err)
	}
	data, err := e.Encode()
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: s.failedSubject(&item), Header: nats.Header{headerFailed: {string(head)}}, Data: data}
	msgID := tokens.Subject(e.Source) + "." + tokens.Subject(e.ID) + "." + strconv.FormatUint(e.Revision, 36)
	seq, err := s.write(ctx, m, jetstream.WithMsgID(msgID))
	if err == nil {
		err = s.durable(ctx, s.StreamName(FailedMessages), seq)
	}
	if err == nil {
		s.Logger.Info("message failed", "source", e.Source, "message", e.ID, "receiver", e.Receiver, "stage", item.Stage, "reason", item.Reason, "error",
			item.Error)
	}
	return err
}

// maxQuarantined bounds the part of a subject that is the source of a message that cannot be decoded, in bytes.
const maxQuarantined = 512

// Quarantine puts a message that cannot be decoded on the list. Its source is its subject, and its ID is its sequence.
func (s *Failed) Quarantine(ctx context.Context, subject string, seq uint64, data []byte, cause error) error {
	e := Entry{Payload: data[:min(len(data), s.MaxPayload())]}
	// Without this, a name that is not UTF-8 would differ between the JSON of the list and the subject.
	e.Source, e.ID = strings.ToValidUTF8(subject[:min(len(subject), maxQuarantined)], ""), strconv.FormatUint(seq, 10)
	e.Status, e.EndedAt = machine.Failed, s.Now()
	e.Failure = &machine.Failure{Stage: machine.FromSender, Reason: machine.Malformed, Error: cause.Error(), Time: e.EndedAt}
	return s.PutFailed(ctx, &e)
}

// LastFailed waits until the list in memory has all messages that were stored before the call, and returns the last sequence. A message is stored
// some milliseconds after its record is FAILED.
func (s *Failed) LastFailed(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	last, err := s.feed.UpToNow(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: the list of failed messages is behind: %w", ErrUnavailable, err)
	}
	return last, nil
}

// ListFailed returns failed messages, the newest first, with sequences below before. If before is 0, it starts with the newest.
func (s *Failed) ListFailed(ctx context.Context, f Filter, before uint64, limit int) ([]Item, error) {
	if _, err := s.LastFailed(ctx); err != nil {
		return nil, err
	}
	s.index.forget(s.Now().Add(-failedAge))
	return s.index.list(f, before, limit), nil
}

// CountFailed returns how many messages are on the list.
func (s *Failed) CountFailed() int {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	return len(s.index.bySubject)
}

// FailedDepth counts the list by receiver, and returns when its first message failed, or the present time if there is none.
func (s *Failed) FailedDepth() (depth map[string]int, oldest time.Time) {
	s.index.forget(s.Now().Add(-failedAge))
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	oldest = s.Now()
	if len(s.index.order) > 0 {
		oldest = s.index.order[0].Time
	}
	return maps.Clone(s.index.depth), oldest
}

// FailedEntry reads a failed message with its payload. It returns ErrNotFound if the message is off the list.
func (s *Failed) FailedEntry(ctx context.Context, i *Item) (Entry, error) {
	m, err := s.readFailed(ctx, i)
	if err != nil {
		return Entry{}, err
	}
	return DecodeEntry(m.Data)
}

// readFailed reads the message of an item. If the item has no sequence, it reads the present message.
func (s *Failed) readFailed(ctx context.Context, i *Item) (*jetstream.RawStreamMsg, error) {
	m, err := jsstream.Last(ctx, s.js, s.failed, s.failedSubject(i))
	if err == nil && (m.Header.Get(headerSettled) != "" || i.Seq != 0 && i.Seq != m.Sequence) {
		err = jetstream.ErrMsgNotFound
	}
	return m, jsstream.ReadError(err, fmt.Sprintf("message %q of source %q is not kept any more: it is off the list of failed messages", i.ID, i.Source))
}

// Settle removes a message from the list. how is the reason. It keeps the payload only if keep is set. It returns ErrConflict if the message is off
// the list, or has failed again. It does not wait for the disk: after a loss of power, the message can be on the list again.
func (s *Failed) Settle(ctx context.Context, i *Item, how string, keep bool) error {
	m := &nats.Msg{Subject: s.failedSubject(i), Header: nats.Header{headerSettled: {how}}}
	opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(i.Seq)}
	if keep {
		kept, err := s.readFailed(ctx, i)
		if errors.Is(err, ErrNotFound) {
			return ErrConflict
		} else if err != nil {
			return err
		}
		m.Data = kept.Data
	} else {
		opts = append(opts, jetstream.WithMsgTTL(settledTTL))
	}
	_, err := s.write(ctx, m, opts...)
	return err
}

// The kinds of operations on failed messages.
const (
	Redrive = "redrive"
	Skip    = "skip"
	Purge   = "purge"
)

const (
	keyOperation = "operation."
	// maxOperations is how many operations of a kind are kept.
	maxOperations = 100
)

// Selection selects the failed messages of an operation.
type Selection struct {
	Seqs   []uint64 `json:"seqs,omitempty"` // in ascending order; nil with a Filter
	Filter *Filter  `json:"filter,omitempty"`
}

// openOperations reads the operations and follows them until run ends.
func (s *Failed) openOperations(ctx, run context.Context) error {
	all := registry.New(registry.Config{JS: s.js, KV: s.stateKV, Stream: s.state, Leader: s.reader, Shared: !s.Embedded, Log: s.Logger})
	s.Operations = bulk.NewTable(all, keyOperation, maxOperations, nil)
	return all.Open(ctx, run, &s.running, s.reader)
}

// SelectFailed returns at most limit messages of a selection that are on the list, the oldest first, within a range of sequences.
// next is the sequence at which to continue, or 0 if there are no more.
func (s *Failed) SelectFailed(sel Selection, from, to uint64, limit int) (items []Item, next uint64) {
	s.index.forget(s.Now().Add(-failedAge))
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	for _, l := range s.index.order[s.index.place(from):] {
		switch {
		case l.Seq > to:
			return items, 0
		case l.off || !sel.match(&l.Item):
		case len(items) == limit:
			return items, l.Seq
		default:
			items = append(items, l.Item)
		}
	}
	return items, 0
}

func (s *Selection) match(i *Item) bool {
	if s.Filter != nil {
		return s.Filter.Match(i)
	}
	_, found := slices.BinarySearch(s.Seqs, i.Seq)
	return found
}
