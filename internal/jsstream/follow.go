package jsstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/stored"
)

const (
	// heartbeat is how often the server says that it is there. News comes by one server of a cluster, which need not be the one that
	// the process is connected to: after twice that time without a word another is asked.
	heartbeat = time.Second
	// progressPause is how often a start looks how far the stream is read.
	progressPause = 100 * time.Millisecond
	// batch is how many messages are asked for at a time.
	batch = 10_000
)

// Feed is a stream that is followed.
type Feed struct {
	JS     jetstream.JetStream
	Stream jetstream.Stream
	Reader *Reader
	// HeadersOnly leaves out the bodies.
	HeadersOnly bool
	// Shared says that the server is not this process's: it may fall silent.
	Shared bool
	// See gets each message, one at a time, in the order of the stream. It has returned before Seen says so.
	See func(msg jetstream.Msg, meta *jetstream.MsgMetadata)
	// Seen is how far the stream is read: what is there at the start, too.
	Seen *Progress
	// Reading is called every now and then until all has come that the stream had at the start. Nil: it is not called.
	Reading func()
	Log     *slog.Logger
}

// Follow reads a stream from what was not seen yet and goes on until run ends. It returns when all has come that the stream
// had at the time of the call; the returned function waits for the end of the reading.
func Follow(ctx, run context.Context, f Feed) (wait func(), err error) {
	info, err := InfoOf(ctx, f.Stream)
	if err != nil {
		return nil, fmt.Errorf("read the state of a stream: %w", err)
	}
	name := info.Config.Name
	var consumer jetstream.Consumer
	err = Insist(ctx, func(ctx context.Context) (err error) {
		consumer, err = f.JS.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: f.Seen.Reached() + 1, HeadersOnly: f.HeadersOnly,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("follow stream %s: %w", name, err)
	}
	opts := []jetstream.PullConsumeOpt{jetstream.PullMaxMessages(batch), jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		f.Log.Debug("following a stream", "stream", name, "error", err)
	})}
	if f.Shared {
		opts = append(opts, jetstream.PullHeartbeat(heartbeat))
	}
	reading, err := consumer.Consume(f.see, opts...)
	if err != nil {
		return nil, fmt.Errorf("follow stream %s: %w", name, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-run.Done()
		reading.Stop()
		<-reading.Closed()
	}()
	return func() { <-ended }, f.caughtUp(ctx, info)
}

// UpToNow returns the last sequence that the stream has, when all up to there was read.
func (f *Feed) UpToNow(ctx context.Context) (uint64, error) {
	info, err := InfoOf(ctx, f.Stream)
	if err != nil {
		return 0, fmt.Errorf("read the state of a stream: %w", err)
	}
	return info.State.LastSeq, f.caughtUp(ctx, info)
}

func (f *Feed) see(msg jetstream.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		f.Log.Warn("message without metadata ignored", "subject", msg.Subject(), "error", err)
		return
	}
	f.See(msg, meta)
	f.Seen.Reach(meta.Sequence.Stream)
}

// caughtUp returns when all has come that the stream had at the time of info, and notes that. The server that the news
// comes from may be behind the leader, so that it has nothing more proves nothing.
func (f *Feed) caughtUp(ctx context.Context, info *jetstream.StreamInfo) error {
	last := info.State.LastSeq
	if info.State.Msgs == 0 {
		last = 0
	}
	for before := uint64(0); ; {
		wait, done := context.WithTimeout(ctx, progressPause)
		err := f.Seen.Wait(wait, last)
		done()
		if err == nil {
			f.Seen.Reach(info.State.LastSeq)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("read stream %s: %w", info.Config.Name, context.Cause(ctx))
		}
		if now := f.Seen.Reached(); now > before {
			before = now
			if f.Reading != nil {
				f.Reading()
			}
		} else if last, err = f.lastStored(ctx, info); err != nil {
			f.Log.Debug("reading a stream", "stream", info.Config.Name, "error", err)
		}
	}
}

// lastStored returns the last sequence, at the time of info, at which a message is still stored. Messages that were deleted at the
// end of a stream are not delivered.
func (f *Feed) lastStored(ctx context.Context, info *jetstream.StreamInfo) (uint64, error) {
	last := info.State.LastSeq
	if _, err := f.Reader.AtLeader(ctx, info.Config.Name, last); !errors.Is(err, stored.ErrNotFound) {
		return last, err
	}
	kept := uint64(0)
	for _, subject := range info.Config.Subjects {
		raw, err := f.Reader.AskLeader(ctx, info.Config.Name, subject)
		switch {
		case err == nil:
			kept = max(kept, raw.Sequence)
		case !errors.Is(err, stored.ErrNotFound):
			return last, err
		}
	}
	return min(kept, last), nil
}
