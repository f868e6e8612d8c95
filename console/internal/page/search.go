package page

import (
	"bytes"
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

const (
	// letterWindow is how many messages are read at once, and maxScanned how many a page or a preview reads.
	letterWindow = 500
	maxScanned   = 10_000
	// windowBytes bounds the messages that a search holds at once, up to one answer of the server more.
	windowBytes = 16 << 20
	// scanTime bounds the search of a page.
	scanTime = 1500 * time.Millisecond
)

// search reads the messages of a stream from the newest to the oldest, by direct get.
type search struct {
	source  MessageSource
	info    *jetstream.StreamInfo
	subject string // of the messages; empty: all
	// low is the first sequence that is searched; 0: that of the stream.
	low uint64
	// most is how many messages are read, and atOnce how many of the first answer.
	most, atOnce int
}

// back passes the messages from a sequence on downwards to visit, until that returns false. It stops earlier, after most messages or scanTime. Next
// is the sequence at which the search goes on; 0: it has reached the begin. Looked counts the messages that were read.
//
// The server reads forwards only, so this reads windows of sequences. They get longer if a stream has gaps, or few messages of the subject.
func (s *search) back(ctx context.Context, from uint64, visit func(*jetstream.RawStreamMsg) bool) (next uint64, looked int, err error) {
	begun := time.Now()
	low := max(1, s.low, s.info.State.FirstSeq)
	width := uint64(s.atOnce)
	for high := min(from, s.info.State.LastSeq); high >= low; {
		if looked >= s.most || time.Since(begun) > scanTime {
			return high, looked, nil
		}
		bottom := low
		if high-low >= width {
			bottom = high - width + 1
		}
		window, cut, err := s.between(ctx, bottom, high)
		if err != nil {
			return high, looked, err
		}
		if cut {
			width = max(1, min(width, high-low+1)/16)
			continue
		}
		for i := len(window) - 1; i >= 0; i-- {
			looked++
			if !visit(window[i]) {
				return window[i].Sequence, looked, nil
			}
		}
		if high = bottom - 1; len(window) <= s.atOnce/2 {
			width *= 16
		}
	}
	return 0, looked, nil
}

// between reads the messages of a range of sequences. An answer may end early where payloads are large. Cut states that there are more messages than
// one step of a search reads, or larger ones than it holds. A range of one sequence is never cut.
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

// find returns the newest n messages from a sequence on downwards that fit, without most of their payloads.
func (s *search) find(ctx context.Context, from uint64, n int, fits func(*jetstream.RawStreamMsg) bool) (found []brief, next uint64, looked int,
	err error,
) {
	next, looked, err = s.back(ctx, from, func(m *jetstream.RawStreamMsg) bool {
		if !fits(m) {
			return true
		}
		if len(found) == n {
			return false
		}
		found = append(found, briefly(m))
		return true
	})
	return found, next, looked, err
}

const (
	// glimpsed is how many bytes of a payload a list shows.
	glimpsed = 100
	// briefHeader bounds a header of a message on a list, in bytes.
	briefHeader = 4 << 10
)

// brief is a message as lists show it: with the begin of its payload and the headers of a dead letter, and how much there is of both.
type brief struct {
	*jetstream.RawStreamMsg
	size, headers int
}

// briefly copies what lists show, so that the memory of the payload and the other headers is free.
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
