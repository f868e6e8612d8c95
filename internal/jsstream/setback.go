package jsstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/watch"
)

const (
	// headerFill marks a message of Refill. Readers skip it.
	headerFill = "Jetpull-Fill"
	// fillBatch is the maximum number of such messages in flight.
	fillBatch = 1000
)

// Refill ensures that the next message of a stream gets a sequence beyond known. Servers that lost their disks or their last writes can set a stream
// back to an older state (nats-server #7545, #7564, #7567). The stream then reassigns sequences that processes, and records in other streams,
// associate with other messages. Refill uses these sequences up, and returns their number. It returns 0 if the stream was not set back.
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
		// The first message shows how many are missing. The state that a server reports may be old.
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

// Refill makes the stream continue after the position that was read if it was set back, and logs that.
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

// refill makes the stream continue after a sequence if it was set back.
func (f *Feed) refill(ctx context.Context, seen uint64) (back bool, err error) {
	now, err := InfoOf(ctx, f.Stream)
	if err != nil {
		return false, err
	}
	if now.State.LastSeq >= seen || !f.created.IsZero() && !now.Created.Equal(f.created) { // a stream that was recreated is another stream
		return false, nil
	}
	forgotten, err := Refill(ctx, f.JS, f.Stream, seen)
	if forgotten > 0 {
		f.Log.Error("a stream was set back to an older state: its servers have lost messages that they had acknowledged", "stream", now.Config.Name,
			"messages", forgotten)
	}
	return forgotten > 0, err
}

const (
	// markPause is the minimum interval between two writes of changed marks.
	markPause = 10 * time.Second
	// lastMark limits the wait for the marks that a process stores when it ends.
	lastMark = time.Second
	// markMost limits how many sequences a mark, which may be forged, can use up.
	markMost = 100_000
)

// Marks store the last sequences of streams, so that the next start detects a stream that was set back while no process ran. They are for external
// servers: an embedded server alone loses only writes that nobody has waited for.
type Marks struct {
	JS      jetstream.JetStream
	Streams []jetstream.Stream
	// Places are where the marks are stored. There are two, because a place can be set back, too.
	Places []Place
	Log    *slog.Logger
}

// Place is a subject in a stream that keeps one message per subject.
type Place struct {
	Stream  jetstream.Stream
	Subject string
}

// mark is the position up to which a stream was written. A stream that was deleted and recreated is another stream.
type mark struct {
	Created time.Time `json:"created"`
	Last    uint64    `json:"last"`
}

// Follow compares the streams with the marks, and then stores marks until run ends. A stream that was set back continues after its mark, but by at
// most [markMost] messages. Follow logs that as an error. The goroutine that stores marks is in running.
func (m *Marks) Follow(ctx, run context.Context, running *sync.WaitGroup) error {
	for _, place := range m.Places {
		marks, err := m.read(ctx, place)
		if err != nil {
			return err
		}
		for _, stream := range m.Streams {
			info := stream.CachedInfo()
			was := marks[info.Config.Name]
			feed := &Feed{JS: m.JS, Stream: stream, Log: m.Log, created: was.Created}
			if _, err := feed.refill(ctx, min(was.Last, info.State.LastSeq+markMost)); err != nil {
				return err
			}
		}
	}
	running.Go(func() { m.follow(run) }) // only now, since it replaces the marks
	return nil
}

// read returns the marks at a place. Marks that cannot be decoded are not from this program, and count as none.
func (m *Marks) read(ctx context.Context, place Place) (marks map[string]mark, err error) {
	var raw *jetstream.RawStreamMsg
	err = Insist(ctx, func(ctx context.Context) (err error) {
		raw, err = Last(ctx, m.JS, place.Stream, place.Subject)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the marks of streams on %s: %w", place.Subject, err)
	}
	if json.Unmarshal(raw.Data, &marks) != nil {
		marks = nil
	}
	return marks, nil
}

// follow stores marks until run ends.
func (m *Marks) follow(run context.Context) {
	var stored string
	for ended := error(nil); ended == nil; {
		ended = watch.Sleep(run, markPause)
		ctx, cancel := run, func() {}
		if ended != nil {
			ctx, cancel = context.WithTimeout(context.WithoutCancel(run), lastMark)
		}
		next, err := m.store(ctx, stored)
		cancel()
		if err != nil {
			m.Log.Debug("the marks of streams are not stored", "error", err)
			continue
		}
		stored = next
	}
}

// store stores the marks if they have changed.
func (m *Marks) store(ctx context.Context, before string) (string, error) {
	marks := map[string]mark{}
	for _, stream := range m.Streams {
		info, err := stream.Info(ctx)
		if err != nil {
			return before, err
		}
		marks[info.Config.Name] = mark{info.Created, info.State.LastSeq}
	}
	data, err := json.Marshal(marks)
	if err != nil || string(data) == before {
		return before, err
	}
	for _, place := range m.Places {
		if _, err := m.JS.Publish(ctx, place.Subject, data); err != nil {
			return before, err
		}
		// Count the mark itself, which is a message in this stream. Otherwise the marks would change each time.
		name := place.Stream.CachedInfo().Config.Name
		if of, ok := marks[name]; ok {
			of.Last++
			marks[name] = of
		}
	}
	data, err = json.Marshal(marks)
	return string(data), err
}
