package journal

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
)

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
