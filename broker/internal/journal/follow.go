package journal

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
	"github.com/jetpull/jetpull/internal/jsstream"
)

// follow reads the unseen part of a stream, and continues until run ends. It returns when it has read all that the stream had at
// the time of the call.
func (s *Store) follow(ctx, run context.Context, stream jetstream.Stream, headersOnly bool, seen *jsstream.Progress,
	see func(*nats.Msg, *nats.MsgMetadata),
) error {
	f := s.feed(stream, seen)
	f.HeadersOnly, f.See, f.Reading = headersOnly, see, s.cfg.Progress
	return s.follows(jsstream.Follow(ctx, run, f))
}

// feed returns a feed of a stream that records its progress in seen.
func (s *base) feed(stream jetstream.Stream, seen *jsstream.Progress) jsstream.Feed {
	f := jsstream.Feed{JS: s.js, Stream: stream, Reader: s.reader, Shared: s.cfg.Shared, Seen: seen, Log: s.log}
	switch seen {
	case s.messagesSeen:
		f.Known = s.known
	case s.jobsSeen:
		f.Known = s.recorded.Load
	}
	return f
}

// seeMessage adds a stored message, of which only the headers were read.
func (s *messages) seeMessage(msg *nats.Msg, meta *nats.MsgMetadata) {
	kind, token, ok := s.parseMessageSubject(msg.Subject)
	front, err := decodeSummary(msg.Header.Get(headerEnvelope))
	if !ok || err != nil {
		s.log.Warn("message that is not the broker's ignored", "subject", msg.Subject, "sequence", meta.Sequence.Stream, "error", err)
		return
	}
	seq := meta.Sequence.Stream
	if kind == "s" {
		at, err := time.Parse(time.RFC3339, strings.TrimPrefix(msg.Header.Get(headerSchedule), schedulePrefix))
		if err != nil {
			s.log.Warn("schedule cannot be read and is ignored", "subject", msg.Subject, "error", err)
			return
		}
		s.Index.AddSchedule(token, msg.Subject, seq, at)
		return
	}
	at := front.receivedAt
	if schedule := msg.Header.Get(headerScheduler); schedule != "" {
		at = meta.Timestamp.UnixNano()
		s.Index.Fired(token, schedule, seq)
	}
	s.Index.AddMessage(token, jobindex.Entry{Seq: seq, At: at, Priority: int32(front.priority)}, front.eventType)
}

// parseMessageSubject splits <name>.<kind>.<channel>.<id>.
func (s *base) parseMessageSubject(subject string) (kind, channelToken string, ok bool) {
	rest, ok1 := strings.CutPrefix(subject, s.cfg.Name+".")
	kind, rest, ok2 := strings.Cut(rest, ".")
	channelToken, _, ok3 := strings.Cut(rest, ".")
	return kind, channelToken, ok1 && ok2 && ok3
}

func (s *jobs) seeRecord(msg *nats.Msg, meta *nats.MsgMetadata) {
	id, err := parseJobSubject(msg.Subject)
	var j domain.Job
	if err == nil {
		j, err = decodeRecord(id, meta.Sequence.Stream, msg.Data)
	}
	if err != nil {
		s.log.Warn("record that cannot be read ignored", "subject", msg.Subject, "error", err)
		return
	}
	s.noteSequence(id.Seq)
	// A process that was killed while it pruned leaves records without messages, and so does a backup that was made meanwhile.
	s.Index.SeeRecord(j, s.messagesSeen.Reached())
}
