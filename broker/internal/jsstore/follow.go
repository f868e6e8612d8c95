package jsstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
	"github.com/jetpull/jetpull/broker/internal/streams"
)

// newsHeartbeat is how often the server says that it is there. News comes by one server of a cluster, which need not be the one that
// the node is connected to: after twice that time without a word another is asked.
const newsHeartbeat = time.Second

// progressPause is how often a start looks how far the streams are read.
const progressPause = 100 * time.Millisecond

// follow reads a stream from what was not seen yet and goes on until run ends. It
// returns when all that the stream had at the time of the call was read.
func (s *Store) follow(ctx, run context.Context, stream jetstream.Stream, headersOnly bool, seen *streams.Progress, see func(jetstream.Msg, *jetstream.MsgMetadata)) error {
	info, err := streams.InfoOf(ctx, stream)
	if err != nil {
		return fmt.Errorf("read the state of a stream: %w", err)
	}
	name := info.Config.Name
	var consumer jetstream.Consumer
	err = streams.Insist(ctx, func(ctx context.Context) (err error) {
		consumer, err = s.js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: seen.Reached() + 1, HeadersOnly: headersOnly,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("follow stream %s: %w", name, err)
	}
	opts := []jetstream.PullConsumeOpt{jetstream.PullMaxMessages(10_000)}
	if s.cfg.Shared {
		opts = append(opts, jetstream.PullHeartbeat(newsHeartbeat))
	}
	reading, err := consumer.Consume(func(msg jetstream.Msg) {
		meta, err := msg.Metadata()
		if err != nil {
			s.log.Warn("message without metadata ignored", "subject", msg.Subject(), "error", err)
			return
		}
		see(msg, meta)
		seen.Reach(meta.Sequence.Stream)
	}, append(opts, jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		s.log.Debug("following a stream", "stream", name, "error", err)
	}))...)
	if err != nil {
		return fmt.Errorf("follow stream %s: %w", name, err)
	}
	s.running.Go(func() {
		<-run.Done()
		reading.Stop()
		<-reading.Closed()
	})
	return s.caughtUp(ctx, info, seen)
}

// readUpToNow returns the last sequence that a stream has, when all up to there was read.
func (s *base) readUpToNow(ctx context.Context, stream jetstream.Stream, seen *streams.Progress) (uint64, error) {
	info, err := streams.InfoOf(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("read the state of a stream: %w", err)
	}
	return info.State.LastSeq, s.caughtUp(ctx, info, seen)
}

// caughtUp returns when all has come that a stream had at the time of info, and notes that. The server that the news
// comes from may be behind the leader, so that it has nothing more proves nothing.
func (s *base) caughtUp(ctx context.Context, info *jetstream.StreamInfo, seen *streams.Progress) error {
	last := info.State.LastSeq
	if info.State.Msgs == 0 {
		last = 0
	}
	for before := uint64(0); ; {
		wait, done := context.WithTimeout(ctx, progressPause)
		err := seen.Wait(wait, last)
		done()
		if err == nil {
			seen.Reach(info.State.LastSeq)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("read stream %s: %w", info.Config.Name, context.Cause(ctx))
		}
		if now := seen.Reached(); now > before {
			before = now
			s.cfg.Progress()
		} else if last, err = s.lastKept(ctx, info); err != nil {
			s.log.Debug("reading a stream", "stream", info.Config.Name, "error", err)
		}
	}
}

// lastKept is the last sequence at the time of info at which a message is still stored: what was deleted at the end of
// a stream does not come.
func (s *base) lastKept(ctx context.Context, info *jetstream.StreamInfo) (uint64, error) {
	last := info.State.LastSeq
	if _, err := s.AtLeader(ctx, info.Config.Name, last); !errors.Is(err, domain.ErrNotFound) {
		return last, err
	}
	kept := uint64(0)
	for _, subject := range info.Config.Subjects {
		raw, err := s.AskLeader(ctx, info.Config.Name, subject)
		switch {
		case err == nil:
			kept = max(kept, raw.Sequence)
		case !errors.Is(err, domain.ErrNotFound):
			return last, err
		}
	}
	return min(kept, last), nil
}

// seeMessage takes a stored message, of which only the headers came.
func (s *messages) seeMessage(msg jetstream.Msg, meta *jetstream.MsgMetadata) {
	kind, token, ok := s.parseMessageSubject(msg.Subject())
	front, err := decodeSummary(msg.Headers().Get(headerEnvelope))
	if !ok || err != nil {
		s.log.Warn("message that is not the broker's ignored", "subject", msg.Subject(), "sequence", meta.Sequence.Stream, "error", err)
		return
	}
	if kind == "s" {
		s.seeSchedule(token, msg.Subject(), meta.Sequence.Stream, front.body)
		return
	}
	at := front.receivedAt
	if schedule := msg.Headers().Get(headerScheduler); schedule != "" {
		at = meta.Timestamp.UnixNano()
		e, err := scheduledFromBody(meta.Sequence.Stream, front.body)
		if err != nil {
			s.log.Warn("scheduled message cannot be read", "subject", msg.Subject(), "error", err)
		}
		e.DispatchedAt, e.Message = at, meta.Sequence.Stream
		s.schedules.Fired(token, schedule, e)
	}
	s.index.AddMessage(token, jobindex.Entry{Seq: meta.Sequence.Stream, At: at, Priority: int32(front.priority)}, front.eventType)
}

func (s *messages) seeSchedule(token, subject string, seq uint64, body string) {
	e, err := scheduledFromBody(seq, body)
	if err != nil {
		s.log.Warn("schedule cannot be read and is ignored", "subject", subject, "error", err)
		return
	}
	s.schedules.Add(token, subject, e)
}

// parseMessageSubject splits <name>.<kind>.<channel>.<id>.
func (s *base) parseMessageSubject(subject string) (kind, channelToken string, ok bool) {
	rest, ok1 := strings.CutPrefix(subject, s.cfg.Name+".")
	kind, rest, ok2 := strings.Cut(rest, ".")
	channelToken, _, ok3 := strings.Cut(rest, ".")
	return kind, channelToken, ok1 && ok2 && ok3
}

func (s *jobs) seeRecord(msg jetstream.Msg, meta *jetstream.MsgMetadata) {
	id, err := parseJobSubject(msg.Subject())
	var j domain.Job
	if err == nil {
		j, err = decodeRecord(id, meta.Sequence.Stream, msg.Data())
	}
	if err != nil {
		s.log.Warn("record that cannot be read ignored", "subject", msg.Subject(), "error", err)
		return
	}
	if s.index.PutRecord(j) {
		s.jobChanged(j)
	}
}
