package page

import (
	"bytes"
	"cmp"
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/jsstream"
)

const (
	// letterWindow is the number of messages to read at once. maxScanned is the number that a page or a preview reads.
	letterWindow = 500
	maxScanned   = 10_000
	// windowBytes limits the size of the messages that a search holds at once. One answer of the server may exceed it.
	windowBytes = 16 << 20
	// scanTime limits the search of a page.
	scanTime = 1500 * time.Millisecond
)

// search reads the messages of a stream with direct get, newest first.
type search struct {
	source  MessageSource
	info    *jetstream.StreamInfo
	subject string // of the messages; empty means all
	// low and high are the first and last sequences to search; 0 means those of the stream. A list starts at from.
	low, high, from uint64
	fits            func(*jetstream.RawStreamMsg) bool // whether a list shows a message
	// most is the number of messages to read, and atOnce the number in the first answer.
	most, atOnce int
}

// begin makes a list of the search start at the sequence in a query, or else at the last one.
func (s *search) begin(q url.Values) (err error) {
	s.from, err = parseSequence(q.Get("seq"))
	if s.from == 0 || s.from > s.high {
		s.from = s.high
	}
	return err
}

// back calls visit for the messages from a sequence down, until visit returns false, or after most messages or scanTime. next is the sequence at
// which the search continues, or 0 if it has reached the start. looked is the number of messages that were read.
func (s *search) back(ctx context.Context, from uint64, visit func(*jetstream.RawStreamMsg) bool) (next uint64, looked int, err error) {
	begun := time.Now()
	read := func(low, high uint64) ([]*jetstream.RawStreamMsg, bool, error) { return s.between(ctx, low, high) }
	one := func(m *jetstream.RawStreamMsg) uint64 {
		if visit(m) {
			return 0
		}
		return m.Sequence
	}
	return jsstream.Back(max(1, s.low, s.info.State.FirstSeq), min(from, s.info.State.LastSeq), s.atOnce, read, one, func(looked int) bool {
		return looked >= s.most || time.Since(begun) > scanTime
	})
}

// between reads the messages in a range of sequences. An answer may end early if payloads are large. cut reports that there are more messages than
// one step of a search may read, or larger ones than it may hold. A range of one sequence is never cut.
func (s *search) between(ctx context.Context, low, high uint64) (all []*jetstream.RawStreamMsg, cut bool, err error) {
	for size := 0; low <= high; {
		n := int(min(high-low+1, letterWindow))
		some, err := s.source.Messages(ctx, s.info, low, cmp.Or(s.subject, ">"), n)
		if err != nil || len(some) == 0 {
			return all, false, err
		}
		for _, m := range some {
			if m.Sequence > high {
				return all, false, nil
			}
			all = append(all, m)
			size += len(m.Data)
			for name, values := range m.Header {
				size += len(name) + len(strings.Join(values, ""))
			}
		}
		low = some[len(some)-1].Sequence + 1
		if low <= high && (size > windowBytes || len(all) > letterWindow && len(all) > s.atOnce) {
			return nil, true, nil
		}
	}
	return all, false, nil
}

// list returns the part of a page with the newest n matching messages, without most of their payloads, and with links to the others. looked is the
// number of messages that were read, and next is where the list continues, or 0 at the end.
func (s *search) list(ctx context.Context, r Request, path, noun string, n int) (part view.Part, found []brief, looked int, next uint64) {
	next, looked, err := s.back(ctx, s.from, func(m *jetstream.RawStreamMsg) bool {
		if !s.fits(m) {
			return true
		}
		if len(found) == n {
			return false
		}
		found = append(found, briefly(m))
		return true
	})
	part = view.Part{ID: path, Source: view.Source{Name: "NATS", Asked: r.Now}}
	part.List = &view.List{Path: path, Query: r.Query, Previous: s.newer(ctx, r.Query, n), Empty: "No " + noun + " matches this filter."}
	if err != nil {
		part.Problem, part.ProblemTone = "The list ends early, since the server did not answer in time: "+err.Error(), view.Warn
	}
	if next > 0 {
		part.List.Next = with(r.Query, "seq", strconv.FormatUint(next, 10))
		part.List.Empty = "None of the " + view.Count(uint64(looked), "message") + " that were read matches. Next looks further."
	}
	return part, found, looked, next
}

// newer returns the query of the page with the n messages above those of a list, or nil if there are none.
func (s *search) newer(ctx context.Context, q url.Values, n int) url.Values {
	var found []uint64
	at, looked, begun := s.from+1, 0, time.Now()
	for at <= s.high && len(found) <= n && looked < s.most && time.Since(begun) < scanTime {
		some, err := s.source.Messages(ctx, s.info, at, cmp.Or(s.subject, ">"), s.atOnce)
		if err != nil {
			break
		}
		if len(some) == 0 {
			at = s.high + 1
			break
		}
		for _, one := range some {
			if one.Sequence <= s.high && s.fits(one) {
				found = append(found, one.Sequence)
			}
		}
		at, looked = some[len(some)-1].Sequence+1, looked+len(some)
	}
	switch {
	case len(found) > n:
		return with(q, "seq", strconv.FormatUint(found[n-1], 10))
	case at <= s.high && at > s.from+1: // there may be more above those that were read
		return with(q, "seq", strconv.FormatUint(at-1, 10))
	case at > s.high && len(found) > 0:
		return with(q, "seq", "")
	}
	return nil
}

const (
	// glimpsed is how many bytes of a payload a list shows.
	glimpsed = 100
	// briefHeader is the maximum size of a header of a listed message, in bytes.
	briefHeader = 4 << 10
)

// brief is a message as lists show it: with the start of its payload, the headers of a dead letter, and the sizes of both.
type brief struct {
	*jetstream.RawStreamMsg
	size, headers int
}

// briefly copies the parts of a message that lists show, so that the memory of the rest can be freed.
func briefly(m *jetstream.RawStreamMsg) brief {
	one := *m
	one.Data, one.Header = bytes.Clone(m.Data[:min(len(m.Data), glimpsed+1)]), nats.Header{}
	for _, name := range []string{
		jetpull.HeaderDeadStream, jetpull.HeaderDeadSequence, jetpull.HeaderDeadConsumer, jetpull.HeaderDeadSubject, jetpull.HeaderDeadAttempts,
		jetpull.HeaderDeadReason,
	} {
		if value := m.Header.Get(name); value != "" {
			one.Header.Set(name, strings.Clone(value[:min(len(value), briefHeader)]))
		}
	}
	return brief{&one, len(m.Data), len(m.Header)}
}
