package test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// fakeNATS is a source whose answers a test decides.
type fakeNATS struct {
	mu        sync.Mutex
	consumers []*jetstream.ConsumerInfo
	// err is the answer to all requests, after hang is closed. Nil hang: at once.
	err  error
	hang chan struct{}
	asks int

	streams  []*jetstream.StreamInfo
	messages []*jetstream.RawStreamMsg
}

func (f *fakeNATS) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeNATS) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asks
}

func (f *fakeNATS) Consumers(ctx context.Context) ([]*jetstream.ConsumerInfo, error) {
	f.mu.Lock()
	hang := f.hang
	f.asks++
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.consumers), f.err
}

func (f *fakeNATS) Oldest(context.Context, *jetstream.ConsumerInfo) (time.Time, error) {
	return time.Now().Add(-time.Minute), nil
}

func (f *fakeNATS) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *fakeNATS) Pause(context.Context, string, string, time.Time) error { return f.failure() }
func (f *fakeNATS) Resume(context.Context, string, string) error           { return f.failure() }
func (f *fakeNATS) Unpin(context.Context, string, string, string) error    { return f.failure() }
func (f *fakeNATS) Reset(context.Context, string, string, uint64) error    { return f.failure() }
func (f *fakeNATS) Delete(context.Context, string, string) error           { return f.failure() }

var errAway = errors.New("nats: no servers available for connection")

func (f *fakeNATS) Streams(context.Context) ([]*jetstream.StreamInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.streams), f.err
}

func (f *fakeNATS) Stream(_ context.Context, name string) (*jetstream.StreamInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, info := range f.streams {
		if info.Config.Name == name {
			return info, f.err
		}
	}
	return nil, jetstream.ErrStreamNotFound
}

func (f *fakeNATS) Messages(_ context.Context, _ *jetstream.StreamInfo, from uint64, _ string, n int) ([]*jetstream.RawStreamMsg, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []*jetstream.RawStreamMsg
	begin, _ := slices.BinarySearchFunc(f.messages, from, func(m *jetstream.RawStreamMsg, seq uint64) int { return cmp.Compare(m.Sequence, seq) })
	for _, m := range f.messages[begin:] {
		if len(found) < n {
			found = append(found, m)
		}
	}
	return found, f.err
}

func (f *fakeNATS) Message(ctx context.Context, _ string, seq uint64) (*jetstream.RawStreamMsg, error) {
	found, err := f.Messages(ctx, nil, seq, ">", 1)
	if err == nil && (len(found) == 0 || found[0].Sequence != seq) {
		err = jetstream.ErrMsgNotFound
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

func (f *fakeNATS) Publish(context.Context, *nats.Msg, string) (string, uint64, error) {
	return "S", 1, f.failure()
}
func (f *fakeNATS) DeleteMessage(context.Context, string, uint64) error { return f.failure() }
