package jsstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/internal/natstest"
)

// writer is a committer of messages on a connection to a peer, which counts what
// it was sent and answers as a test wants.
type writer struct {
	*committer
	peer *natstest.Peer
	sent []string // bodies
	// answer is called with the number of each attempt, from 1.
	answer func(n int, m natstest.Request)
}

func newWriter(t *testing.T) *writer {
	t.Helper()
	w := &writer{peer: natstest.NewPeer(t)}
	s := replicated(t, w.peer)
	w.committer = newCommitter(s.nc, s.link, "S", Config{})
	w.hasty = true
	w.answer = func(_ int, m natstest.Request) { w.peer.ReplyJSON(m.Reply, map[string]any{"seq": 5}) }
	w.peer.OnRequest("a", func(_ *natstest.Peer, m natstest.Request) {
		w.sent = append(w.sent, string(m.Body))
		w.answer(len(w.sent), m)
	})
	return w
}

// lose takes the connection away for as long as the peer refuses another.
func (w *writer) lose(t *testing.T) {
	t.Helper()
	w.peer.Refuse(true)
	w.peer.Cut()
	synctest.Wait()
	require.False(t, w.nc.IsConnected())
}

func (w *writer) write(t *testing.T) (took time.Duration, err error) {
	begin := time.Now()
	_, err = w.commit(t.Context(), &nats.Msg{Subject: "a", Data: []byte("m")}, 0)
	return time.Since(begin), err
}

// A write that finds no connection is refused soon, and at once when there was
// none for long. It is not sent later.
func TestAWriteWithoutAConnectionIsRefusedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.lose(t)
		took, err := w.write(t)
		require.ErrorIs(t, err, broker.ErrUnavailable)
		require.ErrorContains(t, err, "not connected to NATS for 1s, nothing was sent")
		require.Equal(t, outageGrace, took)
		took, err = w.write(t)
		require.ErrorIs(t, err, broker.ErrUnavailable)
		require.Zero(t, took)

		w.peer.Refuse(false)
		time.Sleep(10 * time.Second)
		require.True(t, w.nc.IsConnected())
		require.Empty(t, w.sent, "what was refused was not kept")
		took, err = w.write(t)
		require.NoError(t, err)
		require.Zero(t, took)
		require.Len(t, w.sent, 1)
	})
}

// A connection that is back soon is no error, and the write is sent once.
func TestAWriteSurvivesAShortOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.lose(t)
		time.AfterFunc(outageGrace/4, func() { w.peer.Refuse(false) })
		took, err := w.write(t)
		require.NoError(t, err)
		require.Less(t, took, outageGrace)
		require.Len(t, w.sent, 1)
	})
}

// A write that was sent and whose acknowledgement the outage has taken may be
// stored: it is not told as one that is not.
func TestAWriteThatAnOutageCutIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.answer = func(int, natstest.Request) { w.peer.Refuse(true); w.peer.Cut() }
		took, err := w.write(t)
		require.ErrorIs(t, err, broker.ErrUnavailable)
		require.ErrorContains(t, err, "not known")
		require.NotContains(t, err.Error(), "nothing was sent")
		require.LessOrEqual(t, took, attemptTimeout+retryPause, "the connection is known to be down by then")
		require.Len(t, w.sent, 1)
	})
}

// A server that answers slowly is waited for as ever.
func TestAWriteWaitsForASlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.answer = func(n int, m natstest.Request) {
			if n == 4 {
				w.peer.ReplyJSON(m.Reply, map[string]any{"seq": 5})
			}
		}
		took, err := w.write(t)
		require.NoError(t, err)
		require.Greater(t, took, 3*attemptTimeout)
	})
}

// What became of a job is worth waiting for: nobody else knows it.
func TestAnOutcomeWaitsForTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.hasty = false
		w.lose(t)
		time.AfterFunc(commitTimeout/2, func() { w.peer.Refuse(false) })
		took, err := w.write(t)
		require.NoError(t, err)
		require.GreaterOrEqual(t, took, commitTimeout/2)
		require.Len(t, w.sent, 1)

		w.lose(t)
		took, err = w.write(t)
		require.ErrorIs(t, err, broker.ErrUnavailable)
		require.ErrorContains(t, err, "nothing was sent")
		require.Equal(t, commitTimeout, took)
	})
}

// A store that closes, and a caller that leaves, do not wait for a connection.
func TestNobodyWaitsForAConnectionInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.lose(t)
		time.AfterFunc(outageGrace/4, w.close)
		took, err := w.write(t)
		require.ErrorIs(t, err, broker.ErrUnavailable)
		require.ErrorContains(t, err, "shutting down")
		require.Equal(t, outageGrace/4, took)
	})
}

// Reads are refused as soon as writes are.
func TestAReadWithoutAConnectionIsRefusedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := natstest.NewPeer(t)
		s := replicated(t, p)
		p.Refuse(true)
		p.Cut()
		synctest.Wait()
		begin := time.Now()
		_, err := s.last(t.Context(), s.messageStream, "a")
		require.ErrorIs(t, err, broker.ErrUnavailable)
		require.Equal(t, outageGrace, time.Since(begin))
		_, err = s.MessagesAt(t.Context(), []uint64{7})
		require.ErrorIs(t, err, broker.ErrUnavailable)
		s.cfg.Replicas = 1
		_, err = s.last(t.Context(), s.messageStream, "a")
		require.ErrorIs(t, err, broker.ErrUnavailable)
		require.Equal(t, outageGrace, time.Since(begin))
	})
}
