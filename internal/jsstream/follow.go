package jsstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/stored"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/internal/wire"
)

const (
	// heartbeat is the interval of the server's heartbeats. Messages come from one server of a cluster, which need not be the one to which the
	// process is connected. After two silent intervals, another server is asked.
	heartbeat = time.Second
	// progressPause is how often a start checks its progress.
	progressPause = 100 * time.Millisecond
	// batch is the number of messages in a pull, and pullExpires how long it lasts.
	batch       = 10_000
	pullExpires = 30 * time.Second
	// inactive is how long the server keeps a consumer without pulls.
	inactive = 5 * time.Minute
)

// Feed is a stream to follow.
type Feed struct {
	JS     jetstream.JetStream
	Stream jetstream.Stream
	Reader *Reader
	// HeadersOnly omits the bodies.
	HeadersOnly bool
	// Shared specifies that the server is not part of this process and may fall silent.
	Shared bool
	// See is called for each message, one at a time, in the order of the stream. It returns before Seen includes the message.
	See func(msg *nats.Msg, meta *nats.MsgMetadata)
	// Seen is the position up to which the stream was read. Follow starts after its initial position.
	Seen *Progress
	// Replaced is called when the stream was deleted and recreated, before it is read from its start. If Replaced is nil, only messages with later
	// sequences than the seen ones are certain to be read.
	Replaced func()
	// SetBack is called when the stream was set back to an older state, before it is read from its start again. After an error, it is called again.
	// If SetBack is nil, reading continues after the position that was reached.
	SetBack func(ctx context.Context) error
	// Known returns the highest sequence that is known from elsewhere. Nil means that there is none.
	Known func() uint64
	// Reading is called from time to time until everything that the stream had at the start was read. It may be nil.
	Reading func()
	Log     *slog.Logger

	created time.Time // when the stream was created, as of its first reading
	again   bool      // the stream was set back, and SetBack has not succeeded since
}

// Follow reads a stream, starting after Seen, until run ends. It returns when it has read everything that the stream had at the time of the call.
// Its goroutine is in running.
func Follow(ctx, run context.Context, running *sync.WaitGroup, f Feed) error {
	info, err := InfoOf(ctx, f.Stream)
	if err != nil {
		return fmt.Errorf("read the state of a stream: %w", err)
	}
	if f.Replaced != nil {
		f.Seen.begin(info.Created)
	}
	consumer, err := f.consumer(ctx, info.Config.Name)
	if err != nil {
		return fmt.Errorf("follow stream %s: %w", info.Config.Name, err)
	}
	f.created = info.Created
	running.Go(func() { f.read(run, consumer) })
	return f.caughtUp(ctx, info)
}

// consumer creates a consumer that starts after Seen.
func (f *Feed) consumer(ctx context.Context, stream string) (info *jetstream.ConsumerInfo, err error) {
	err = Insist(ctx, func(ctx context.Context) error {
		consumer, err := f.JS.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: f.Seen.Reached() + 1, HeadersOnly: f.HeadersOnly,
			AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1, MemoryStorage: true, Replicas: 1, InactiveThreshold: inactive,
		})
		if err == nil {
			info = consumer.CachedInfo()
		}
		return err
	})
	return info, err
}

// read reads until run ends. It creates another consumer when one has skipped a message or does not answer.
func (f *Feed) read(run context.Context, consumer *jetstream.ConsumerInfo) {
	for {
		err := f.readBy(run, consumer)
		if run.Err() != nil {
			return
		}
		f.Log.Debug("following a stream", "stream", consumer.Stream, "error", err)
		_ = watch.Sleep(run, RetryPause)
		if next, err := f.resume(run, consumer.Stream); err == nil {
			consumer = next
		} else {
			f.Log.Debug("following a stream", "stream", consumer.Stream, "error", err)
		}
	}
}

// resume creates another consumer. It checks twice whether the stream was set back: before restart, which would take it for another stream, and after
// the creation, because it may be set back in between. If the stream is set back later, the consumer ends.
func (f *Feed) resume(run context.Context, stream string) (*jetstream.ConsumerInfo, error) {
	if _, err := f.Refill(run); err != nil {
		return nil, err
	}
	f.restart(run)
	next, err := f.consumer(run, stream)
	if err != nil {
		return nil, err
	}
	if back, err := f.Refill(run); err != nil || !back {
		return next, err
	}
	return f.consumer(run, stream)
}

// restart starts from the beginning if the stream was replaced by another.
func (f *Feed) restart(ctx context.Context) {
	if f.Replaced == nil {
		return
	}
	if info, err := InfoOf(ctx, f.Stream); err == nil && f.Seen.other(info) {
		f.Log.Warn("a stream was deleted and created again, and is read from its start", "stream", info.Config.Name)
		f.Replaced()
		f.Seen.begin(info.Created)
		f.created = info.Created
	}
}

var errGap = errors.New("the consumer has left out a message")

// readBy reads with a consumer until run or the connection ends, or the consumer does not deliver all messages in order.
//
// The consumers of package jetstream mistake a message without a payload for a status of the server if its publisher set a Status header. They would
// read it again and again. Here, a message is a status only if it has no reply subject.
func (f *Feed) readBy(run context.Context, consumer *jetstream.ConsumerInfo) error {
	nc, opts := f.JS.Conn(), f.JS.Options()
	prefix := wire.APIPrefix(opts.APIPrefix, opts.Domain)
	defer func() { _ = nc.Publish(prefix+"CONSUMER.DELETE."+consumer.Stream+"."+consumer.Name, nil) }()
	beat := pullExpires / 2
	if f.Shared {
		beat = heartbeat
	}
	request, err := json.Marshal(map[string]any{"batch": batch, "expires": pullExpires, "idle_heartbeat": beat})
	if err != nil {
		return err
	}
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := sub.SetPendingLimits(-1, -1); err != nil { // the pull is the limit
		return err
	}
	defer endAt(run, nc, sub)()
	left := 0 // messages that the current pull may still bring
	for delivered := uint64(0); ; {
		if left == 0 {
			if err := nc.PublishRequest(wire.ConsumerSubject(prefix, "MSG.NEXT", consumer.Stream, consumer.Name), inbox, request); err != nil {
				return err
			}
			left = batch
		}
		m, err := sub.NextMsg(2 * beat)
		if err != nil {
			return err
		}
		if m.Reply == "" {
			switch status := m.Header.Get(wire.HeaderStatus); status {
			case "100": // a heartbeat
			case "408": // the pull has expired
				left = 0
			default:
				return fmt.Errorf("the server answered %s %s", status, m.Header.Get(wire.HeaderDescription))
			}
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if delivered++; meta.Sequence.Consumer != delivered {
			return errGap
		}
		left--
		if m.Header.Get(headerFill) == "" {
			f.See(m, meta)
		}
		f.Seen.Reach(meta.Sequence.Stream)
	}
}

// endAt ends a subscription when run or the connection ends, because the server forgets the pull. stop waits for endAt's goroutine.
func endAt(run context.Context, nc *nats.Conn, sub *nats.Subscription) (stop func()) {
	lost := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	ctx, cancel := context.WithCancel(run)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
		case <-lost:
		}
		_ = sub.Unsubscribe()
	}()
	return func() { cancel(); <-ended; nc.RemoveStatusListener(lost) }
}

// UpToNow waits until everything in the stream was read, and returns the stream's last sequence.
func (f *Feed) UpToNow(ctx context.Context) (uint64, error) {
	for {
		info, err := InfoOf(ctx, f.Stream)
		if err != nil {
			return 0, fmt.Errorf("read the state of a stream: %w", err)
		}
		if f.Replaced == nil || !f.Seen.other(info) {
			return info.State.LastSeq, f.caughtUp(ctx, info)
		}
		if ended := watch.Sleep(ctx, progressPause); ended != nil {
			return 0, fmt.Errorf("stream %s was deleted and created again, and is not read yet: %w", info.Config.Name, ended)
		}
	}
}

// caughtUp returns when everything that the stream had at the time of info was read, and records that. The delivering server may be behind
// the leader, so it proves nothing if that server has no more messages.
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
			f.Seen.reach(info.State.LastSeq, info.Created)
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

// lastStored returns the last sequence, as of info, whose message is still stored. Messages that were deleted at the end of a stream are not
// delivered.
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
