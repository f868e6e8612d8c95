package jetpull

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// soak is the handler of a long run: slow ones, failing ones, fast ones.
type soak struct {
	*natstest.History
	run   int
	tries journal
	key   func(*Msg) string
}

func (k *soak) handle(_ context.Context, m *Msg) error {
	seq := m.Sequence()
	key := k.key(m)
	k.Begin(k.run, key, seq, m.Delivered())
	err := k.work(m)
	k.End(k.run, key, seq, err)
	return err
}

func (k *soak) work(m *Msg) error {
	seq := m.Sequence()
	n := k.tries.note(m)
	if seq%31 == 0 {
		<-time.After(15 * time.Second)
	}
	if n == 1 && seq%17 == 0 {
		return Retry(time.Duration(seq%5)*time.Second, errors.New("now and then"))
	}
	<-time.After(time.Duration(seq%10) * time.Millisecond)
	return nil
}

// upset makes one of the faults of a long run, or none.
func (s *stage) upset(draw *rand.Rand) {
	switch draw.IntN(12) {
	case 0:
		s.peer.Cut()
		s.forgetAll()
	case 1:
		s.endAll(409, "Leadership Change")
	case 2:
		s.forgetAll()
	case 3:
		s.answer(503, "")
		s.endAll(409, "Server Shutdown")
		pass(time.Duration(draw.IntN(5000)) * time.Millisecond)
		s.relent()
	}
}

// TestConsumeSoak is an hour of everything, in virtual time. Each message is handled
// with success once, whatever is delivered again, and with keys in order.
func TestConsumeSoak(t *testing.T) {
	byRest := func(m *Msg) string { return strconv.FormatUint(m.Sequence()%23, 10) }
	for name, tt := range map[string]struct {
		key  func(*Msg) string
		opts []Option
	}{
		"in any order": {key: func(*Msg) string { return "" }},
		"by key":       {key: byRest, opts: []Option{OrderedBy(byRest)}},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{AckWait: 10 * time.Second}, func(t *testing.T, s *stage) {
				soakFor(t, s, time.Hour, tt.key, tt.opts...)
			})
		})
	}
}

func soakFor(t *testing.T, s *stage, long time.Duration, key func(*Msg) string, opts ...Option) {
	draw := rand.New(rand.NewPCG(1, 2))
	k := &soak{History: natstest.NewHistory(), key: key}
	k.run = k.Run()
	r := s.consume(k.handle, append(opts, Concurrency(16), AwaitConsumer())...)
	published := 0
	start := time.Now()
	for time.Since(start) < long {
		n := draw.IntN(20)
		s.publish(n)
		published += n
		pass(time.Duration(1+draw.IntN(10)) * time.Second)
		s.upset(draw)
	}
	pass(5 * time.Minute)
	require.Equal(t, published, s.ackedCount(), "nothing is lost")
	require.Zero(t, s.unsettled())
	require.Empty(t, k.Verdict(published))
	require.Equal(t, published+published/17, k.Began(), "each is handled once, and those that failed once more")
	t.Log(k.History)
	require.LessOrEqual(t, s.pullCount(), published+3600, "pulls")
	require.NoError(t, r.stop())
	synctest.Wait()
	require.Zero(t, s.sub.Stats().Outstanding)
	require.Zero(t, s.sub.Stats().Buffered+s.sub.Stats().Running)
}
