package test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console"
	workers "github.com/jetpull/jetpull/internal/running"
	"github.com/jetpull/jetpull/partition"
)

// fakeNATS is a source whose answers a test decides.
type fakeNATS struct {
	mu        sync.Mutex
	consumers []*jetstream.ConsumerInfo
	// err is the answer to all requests, after hang is closed. Nil hang: at once.
	err  error
	hang chan struct{}
	asks int

	// changed is called for each change; nil: it is not.
	changed func(call string)

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

func (f *fakeNATS) StoredAfter(context.Context, *jetstream.ConsumerInfo, uint64) (time.Time, error) {
	return time.Now().Add(-time.Minute), nil
}

func (f *fakeNATS) Running(context.Context, string, string) ([]workers.List, error) {
	return nil, f.failure()
}

func (f *fakeNATS) Cancel(context.Context, string, string, uint64) ([]workers.Cancelled, error) {
	return nil, f.failure()
}

func (f *fakeNATS) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *fakeNATS) change(verb, what string) error {
	if f.changed != nil {
		f.changed("nats " + verb + " " + what)
	}
	return f.failure()
}

func (f *fakeNATS) PauseConsumer(_ context.Context, _, name string, _ time.Time) (*jetstream.ConsumerPauseResponse, error) {
	return nil, f.change("pause", name)
}

func (f *fakeNATS) ResumeConsumer(_ context.Context, _, name string) (*jetstream.ConsumerPauseResponse, error) {
	return nil, f.change("resume", name)
}

func (f *fakeNATS) Unpin(_ context.Context, _, name, _ string) error { return f.change("unpin", name) }

func (f *fakeNATS) Reset(_ context.Context, _, name string, _ uint64) error {
	return f.change("reset", name)
}

func (f *fakeNATS) DeleteConsumer(_ context.Context, _, name string) error {
	return f.change("delete", name)
}

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

func (f *fakeNATS) Count(context.Context, *jetstream.StreamInfo, uint64, string) (uint64, error) {
	return uint64(len(f.messages)), f.failure()
}

func (f *fakeNATS) Subjects(context.Context, string, string) (map[string]uint64, error) {
	return map[string]uint64{f.streams[0].Config.Name: uint64(len(f.messages))}, f.failure()
}

// PartitionSets are a set for each stream, one partition of which has a member.
func (f *fakeNATS) PartitionSets(context.Context) ([]console.PartitionSet, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []console.PartitionSet
	for _, info := range f.streams {
		s := info.Config.Name
		all = append(all, console.PartitionSet{
			Name: s, Stream: s, Subject: s,
			Partitions: []partition.Partition{{Member: s, Since: time.Now(), Pending: 3}, {Number: 1, Pending: 4}},
		})
	}
	return all, f.err
}

func (f *fakeNATS) Account(context.Context) (console.AccountInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := console.AccountInfo{Server: f.name(), Version: "2.15.2", Cluster: f.name(), Info: &jetstream.AccountInfo{Tier: jetstream.Tier{
		Streams: len(f.streams), Limits: jetstream.AccountLimits{MaxStreams: 100, MaxStore: -1},
	}}}
	return one, f.err
}

// name is that of the first stream.
func (f *fakeNATS) name() string {
	if len(f.streams) == 0 {
		return "n1"
	}
	return f.streams[0].Config.Name
}

func (f *fakeNATS) Inbox() string { return nats.InboxPrefix }

func (f *fakeNATS) PublishMsg(_ context.Context, m *nats.Msg, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	return &jetstream.PubAck{Stream: f.streams[0].Config.Name, Sequence: 1}, f.change("publish", m.Subject)
}

func (f *fakeNATS) DeleteMessage(_ context.Context, _ string, seq uint64) error {
	return f.change("deletemessage", strconv.FormatUint(seq, 10))
}
