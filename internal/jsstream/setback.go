package jsstream

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// headerFill marks a message of Refill, which readers pass over.
	headerFill = "Jetpull-Fill"
	// fillBatch is how many such messages are on their way at a time.
	fillBatch = 1000
)

// Refill has the next message of a stream get a sequence beyond known. Servers that have lost their disks, or their last writes, can set a stream
// back to an older state (nats-server #7545, #7564, #7567). Then it assigns sequences again that processes, and records in other streams,
// know as those of other messages. Refill uses them up, and returns how many there were: 0 if the stream was not set back.
func Refill(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, known uint64) (forgotten uint64, err error) {
	info := stream.CachedInfo()
	subject := strings.TrimSuffix(info.Config.Subjects[0], ">") + "fill"
	defer func() {
		purge := stream.Purge(context.WithoutCancel(ctx), jetstream.WithPurgeSubject(subject))
		if err == nil && purge != nil {
			err = fmt.Errorf("remove the filling of stream %s: %w", info.Config.Name, purge)
		}
	}()
	for last := uint64(0); last <= known; {
		// The first one says how many are missing. A state that a server reports may be old.
		count := uint64(1)
		if last > 0 {
			count = min(known-last+1, fillBatch)
		}
		writes := make([]func(context.Context) (uint64, error), 0, count)
		for range count {
			writes = append(writes, BeginWrite(js, &nats.Msg{Subject: subject, Header: nats.Header{headerFill: {"1"}}}))
		}
		for _, written := range writes {
			seq, err := written(ctx)
			if err != nil {
				return forgotten, fmt.Errorf("fill stream %s: %w", info.Config.Name, err)
			}
			if last == 0 && seq <= known {
				forgotten = known - seq + 1
			}
			last = seq
		}
	}
	return forgotten, nil
}

// Refill makes the stream go on behind what was read of it, if it was set back, and logs that.
func (f *Feed) Refill(ctx context.Context) (back bool, err error) {
	seen := f.Seen.Reached()
	if f.Known != nil {
		seen = max(seen, f.Known())
	}
	back, err = f.refill(ctx, seen)
	f.again = f.again || back && f.SetBack != nil
	if err == nil && f.again {
		f.Seen.begin(f.created)
		err = f.SetBack(ctx)
		f.again = err != nil
	}
	return back, err
}

// refill makes the stream go on behind a sequence.
func (f *Feed) refill(ctx context.Context, seen uint64) (back bool, err error) {
	now, err := InfoOf(ctx, f.Stream)
	if err != nil {
		return false, err
	}
	if now.State.LastSeq >= seen || !f.created.IsZero() && !now.Created.Equal(f.created) { // one that was created again is another stream
		return false, nil
	}
	forgotten, err := Refill(ctx, f.JS, f.Stream, seen)
	if forgotten > 0 {
		f.Log.Error("a stream was set back to an older state: its servers have lost messages that they had acknowledged", "stream", now.Config.Name,
			"messages", forgotten)
	}
	return forgotten > 0, err
}
