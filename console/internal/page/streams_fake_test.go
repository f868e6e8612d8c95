package page

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/wire"
)

// storedStream is an account with one stream, whose messages a test stores and deletes.
type storedStream struct {
	MessageSource

	mu   sync.Mutex
	info jetstream.StreamInfo
	all  []*jetstream.RawStreamMsg
	read int // messages
	err  error
}

func newStream(name string, subjects ...string) *storedStream {
	s := &storedStream{}
	s.info.Config = jetstream.StreamConfig{Name: name, Subjects: subjects, AllowDirect: true}
	s.info.State.FirstSeq = 1
	return s
}

// store stores n messages.
func (s *storedStream) store(n int, m jetstream.RawStreamMsg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.info.State.LastSeq++
		one := m
		one.Sequence, one.Time = s.info.State.LastSeq, time.Now()
		s.all = append(s.all, &one)
	}
	s.update()
}

// letter stores dead letters.
func (s *storedStream) letter(n int, reason string) {
	s.store(n, jetstream.RawStreamMsg{Subject: "dlq", Header: nats.Header{
		jetpull.HeaderDeadSubject: {"orders.new"}, jetpull.HeaderDeadStream: {"ORDERS"}, jetpull.HeaderDeadReason: {reason},
	}})
}

// remove deletes the messages that fit.
func (s *storedStream) remove(fits func(*jetstream.RawStreamMsg) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, fits)
	s.update()
}

func (s *storedStream) update() {
	st := &s.info.State
	st.Msgs, st.FirstSeq = uint64(len(s.all)), st.LastSeq+1
	if len(s.all) > 0 {
		st.FirstSeq = s.all[0].Sequence
	}
	st.NumDeleted = int(st.LastSeq + 1 - st.FirstSeq - st.Msgs)
}

func (s *storedStream) Streams(ctx context.Context) ([]*jetstream.StreamInfo, error) {
	info, err := s.Stream(ctx, s.info.Config.Name)
	return []*jetstream.StreamInfo{info}, err
}

func (s *storedStream) Stream(_ context.Context, name string) (*jetstream.StreamInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name != s.info.Config.Name {
		return nil, jetstream.ErrStreamNotFound
	}
	info := s.info
	return &info, s.err
}

func (s *storedStream) Messages(_ context.Context, _ *jetstream.StreamInfo, from uint64, subject string, n int) (found []*jetstream.RawStreamMsg, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin, _ := slices.BinarySearchFunc(s.all, from, func(m *jetstream.RawStreamMsg, seq uint64) int { return int(m.Sequence) - int(seq) })
	for _, m := range s.all[begin:] {
		if len(found) < n && wire.Matches(subject, m.Subject) {
			found = append(found, m)
		}
	}
	s.read += len(found)
	return found, s.err
}

func (s *storedStream) reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.read
	s.read = 0
	return n
}

func (s *storedStream) Count(_ context.Context, _ *jetstream.StreamInfo, from uint64, subject string) (n uint64, err error) {
	found, err := s.Messages(context.Background(), nil, from, cmp.Or(subject, ">"), len(s.all)+1)
	return uint64(len(found)), err
}

func (s *storedStream) Message(ctx context.Context, _ string, seq uint64) (*jetstream.RawStreamMsg, error) {
	found, err := s.Messages(ctx, nil, seq, ">", 1)
	if err == nil && (len(found) == 0 || found[0].Sequence != seq) {
		err = jetstream.ErrMsgNotFound
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

func (s *storedStream) Subjects(context.Context, string, string) (map[string]uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]uint64{}
	for _, m := range s.all {
		counts[m.Subject]++
	}
	return counts, s.err
}
