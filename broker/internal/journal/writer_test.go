package journal

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/natstest"
)

// writer is a Writer on a connection to a peer. The peer counts the messages that it receives, and answers as the test wants.
type writer struct {
	*Writer
	peer *natstest.Peer
	sent []string // bodies
	// answer is called with the number of each attempt, from 1.
	answer func(n int, m natstest.Request)
}

// replica reads a stream of three copies that a script plays.
type replica struct {
	*jsstream.Reader
	nc     *nats.Conn
	js     jetstream.JetStream
	link   *Link
	stream jetstream.Stream
}

func replicated(t *testing.T, p *natstest.Peer) *replica {
	t.Helper()
	nc := p.Connect(t, nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
	js := natstest.JetStream(t, nc)
	p.OnRequest("$JS.API.STREAM.INFO.M", func(p *natstest.Peer, m natstest.Request) {
		p.ReplyJSON(m.Reply, map[string]any{"config": jetstream.StreamConfig{Name: "M", AllowDirect: true}})
	})
	stream, err := js.Stream(t.Context(), "M")
	require.NoError(t, err)
	run, stop := context.WithCancel(context.Background())
	link, watch := WatchLink(nc)
	var running sync.WaitGroup
	running.Go(func() { watch(run) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return &replica{jsstream.NewReader(js, 3, link.Await), nc, js, link, stream}
}

func newWriter(t *testing.T) *writer {
	t.Helper()
	w := &writer{peer: natstest.NewPeer(t)}
	s := replicated(t, w.peer)
	w.Writer = NewWriter(s.js, s.link, "S")
	w.FailFast = true
	w.answer = func(_ int, m natstest.Request) { w.peer.ReplyJSON(m.Reply, map[string]any{"stream": "S", "seq": 5}) }
	w.peer.OnRequest("a", func(_ *natstest.Peer, m natstest.Request) {
		w.sent = append(w.sent, string(m.Body))
		w.answer(len(w.sent), m)
	})
	return w
}

// lose closes the connection, which stays down while the peer refuses new ones.
func (w *writer) lose(t *testing.T) {
	t.Helper()
	w.peer.Refuse(true)
	w.peer.Cut()
	synctest.Wait()
	require.False(t, w.js.Conn().IsConnected())
}

func (w *writer) write(t *testing.T) (took time.Duration, err error) {
	begin := time.Now()
	_, err = w.Commit(t.Context(), &nats.Msg{Subject: "a", Data: []byte("m")}, 0)
	return time.Since(begin), err
}

// A write without a connection fails soon, and at once if the outage has lasted. It is not sent later.
func TestAWriteWithoutAConnectionIsRefusedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.lose(t)
		took, err := w.write(t)
		require.ErrorIs(t, err, domain.ErrUnavailable)
		require.ErrorContains(t, err, "not connected to NATS for 1s, nothing was sent")
		require.Equal(t, outageGrace, took)
		took, err = w.write(t)
		require.ErrorIs(t, err, domain.ErrUnavailable)
		require.Zero(t, took)

		w.peer.Refuse(false)
		time.Sleep(10 * time.Second)
		require.True(t, w.js.Conn().IsConnected())
		require.Empty(t, w.sent, "what was refused was not kept")
		took, err = w.write(t)
		require.NoError(t, err)
		require.Zero(t, took)
		require.Len(t, w.sent, 1)
	})
}

// A short outage is not an error, and the write is sent once.
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

// If an outage cuts off the acknowledgement of a write, the write may be stored. Its error does not say that it is not.
func TestAWriteThatAnOutageCutIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.answer = func(int, natstest.Request) { w.peer.Refuse(true); w.peer.Cut() }
		took, err := w.write(t)
		require.ErrorIs(t, err, domain.ErrUnavailable)
		require.ErrorContains(t, err, "not known")
		require.NotContains(t, err.Error(), "nothing was sent")
		require.LessOrEqual(t, took, jsstream.AttemptTimeout+jsstream.RetryPause, "the connection is known to be down by then")
		require.Len(t, w.sent, 1)
	})
}

// A write waits for a server that answers slowly.
func TestAWriteWaitsForASlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.answer = func(n int, m natstest.Request) {
			if n == 4 {
				w.peer.ReplyJSON(m.Reply, map[string]any{"stream": "S", "seq": 5})
			}
		}
		took, err := w.write(t)
		require.NoError(t, err)
		require.Greater(t, took, 3*jsstream.AttemptTimeout)
	})
}

// The outcome of a job waits longer for a connection, because no other process knows it.
func TestAnOutcomeWaitsForTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.FailFast = false
		w.lose(t)
		time.AfterFunc(jsstream.CommitTimeout/2, func() { w.peer.Refuse(false) })
		took, err := w.write(t)
		require.NoError(t, err)
		require.GreaterOrEqual(t, took, jsstream.CommitTimeout/2)
		require.Len(t, w.sent, 1)

		w.lose(t)
		took, err = w.write(t)
		require.ErrorIs(t, err, domain.ErrUnavailable)
		require.ErrorContains(t, err, "nothing was sent")
		require.Equal(t, jsstream.CommitTimeout, took)
	})
}

// A store that closes, and a caller that leaves, do not wait for a connection.
func TestNobodyWaitsForAConnectionInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.lose(t)
		time.AfterFunc(outageGrace/4, w.close)
		took, err := w.write(t)
		require.ErrorIs(t, err, domain.ErrUnavailable)
		require.ErrorContains(t, err, "shutting down")
		require.Equal(t, outageGrace/4, took)
	})
}

// Reads without a connection fail as soon as writes do.
func TestAReadWithoutAConnectionIsRefusedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := natstest.NewPeer(t)
		s := replicated(t, p)
		p.Refuse(true)
		p.Cut()
		synctest.Wait()
		begin := time.Now()
		_, err := s.Last(t.Context(), s.stream, "a")
		require.ErrorIs(t, err, domain.ErrUnavailable)
		require.Equal(t, outageGrace, time.Since(begin))
		_, err = s.At(t.Context(), s.stream, 7)
		require.ErrorIs(t, err, domain.ErrUnavailable)
		single := jsstream.NewReader(s.js, 1, s.link.Await)
		_, err = single.Last(t.Context(), s.stream, "a")
		require.ErrorIs(t, err, domain.ErrUnavailable)
		require.Equal(t, outageGrace, time.Since(begin))
	})
}

// refuseSequence answers that the last sequence is not the expected one. Code 10071 concerns a stored message, 10164 a write that
// is being replicated.
func (w *writer) refuseSequence(m natstest.Request, code jetstream.ErrorCode) {
	w.peer.ReplyJSON(m.Reply, map[string]any{"error": map[string]any{"code": 400, "err_code": code, "description": "wrong last sequence"}})
}

// While a write has no majority yet, the leader refuses any other write to its subject. Nothing is stored yet, and may never be.
// So the answer is neither that the message exists nor that it does not.
func TestAWriteWaitsForTheOneBeforeIt(t *testing.T) {
	for name, ours := range map[string]bool{"its own attempt": true, "another's": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWriter(t)
				stored := false
				w.Last = func(context.Context, string) (*jetstream.RawStreamMsg, error) {
					if !stored {
						return nil, domain.ErrNotFound
					}
					return &jetstream.RawStreamMsg{Sequence: 5, Data: []byte("m")}, nil
				}
				w.answer = func(n int, m natstest.Request) {
					switch {
					case n == 1 && ours:
						// The answer arrives when there is a majority, or never.
					case n < 5:
						w.refuseSequence(m, jetstream.JSErrCodeStreamWrongLastSequenceConstant)
					default:
						stored = true
						w.refuseSequence(m, jetstream.JSErrCodeStreamWrongLastSequence)
					}
				}
				_, err := w.write(t)
				if ours {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, domain.ErrConflict)
				}
				require.Len(t, w.sent, 5)

				// Without a majority the result is unknown.
				w.sent = nil
				w.answer = func(n int, m natstest.Request) {
					if n > 1 || !ours {
						w.refuseSequence(m, jetstream.JSErrCodeStreamWrongLastSequenceConstant)
					}
				}
				took, err := w.write(t)
				require.ErrorIs(t, err, domain.ErrUnavailable)
				require.NotErrorIs(t, err, domain.ErrConflict)
				require.GreaterOrEqual(t, took, jsstream.CommitTimeout)
				require.Less(t, took, jsstream.CommitTimeout+jsstream.AttemptTimeout)
			})
		})
	}
}

// A stored message may be gone when its writer looks for it, such as a schedule that was broadcast. That differs from a message
// that was never stored.
func TestAWriteThatIsGoneAgainIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.Last = func(context.Context, string) (*jetstream.RawStreamMsg, error) { return nil, domain.ErrNotFound }
		w.answer = func(n int, m natstest.Request) {
			if n > 1 {
				w.refuseSequence(m, jetstream.JSErrCodeStreamWrongLastSequence)
			}
		}
		_, err := w.write(t)
		require.ErrorIs(t, err, domain.ErrUnavailable)
		require.NotErrorIs(t, err, domain.ErrNotFound)
		require.ErrorContains(t, err, "not known")
		require.Len(t, w.sent, 2)
	})
}
