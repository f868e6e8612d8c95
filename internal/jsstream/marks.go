package jsstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/watch"
)

const (
	// markPause is how often marks are stored, if there is news.
	markPause = 10 * time.Second
	// lastMark bounds the wait for the marks that a process stores when it ends.
	lastMark = time.Second
	// markMost bounds the sequences that are used up because of a mark, which may be forged.
	markMost = 100_000
)

// Marks store how many messages streams have had, so that the next start notices a stream that was set back while no process ran. They are for
// servers of others: an embedded server alone loses only what nobody has waited for.
type Marks struct {
	JS      jetstream.JetStream
	Streams []jetstream.Stream
	// Places are where the marks are stored. There are two, since a place can be set back as well.
	Places []Place
	Log    *slog.Logger
}

// Place is a subject of a stream that keeps one message for a subject.
type Place struct {
	Stream  jetstream.Stream
	Subject string
}

// mark is how far a stream was written. A stream that was deleted and created again is another one.
type mark struct {
	Created time.Time `json:"created"`
	Last    uint64    `json:"last"`
}

// Check compares the streams with the marks. A stream that was set back goes on behind its mark, by [markMost] messages at most, and that is
// logged as an error.
func (m *Marks) Check(ctx context.Context) error {
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
	return nil
}

// read returns the marks that a place has. Marks that cannot be decoded are somebody else's, and count as none.
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

// Run stores marks until run ends.
func (m *Marks) Run(run context.Context) {
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

// store stores marks, unless they are those that were stored before.
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
		// The mark of its own place is a message, too. Without this there would be news each time.
		name := place.Stream.CachedInfo().Config.Name
		if of, ok := marks[name]; ok {
			of.Last++
			marks[name] = of
		}
	}
	data, err = json.Marshal(marks)
	return string(data), err
}
