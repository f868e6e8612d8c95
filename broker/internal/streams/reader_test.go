package streams

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// replica reads a stream of three copies that a script plays.
type replica struct {
	*Reader
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
	return &replica{NewReader(js, link, 3), stream}
}

// storedMessage is a leader's answer to STREAM.MSG.GET.
func storedMessage(seq uint64) map[string]any {
	return map[string]any{"message": map[string]any{"seq": seq, "hdrs": []byte("NATS/1.0\r\nName: m\r\n\r\n"), "data": []byte("body"), "time": time.Now()}}
}

// A replica that lags says that there is no such message. Its leader is asked
// before that is believed.
func TestAReplicaThatLagsIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := natstest.NewPeer(t)
		s := replicated(t, p)
		direct := 0
		p.OnRequest("$JS.API.DIRECT.GET.>", func(p *natstest.Peer, m natstest.Request) {
			direct++
			p.Status(m.Reply, 404, "Message Not Found")
		})
		p.OnRequest("$JS.API.STREAM.MSG.GET.M", func(p *natstest.Peer, m natstest.Request) {
			if string(m.Body) != `{"seq":7}` {
				p.ReplyError(m.Reply, 404, jetstream.JSErrCodeMessageNotFound, "no message found")
				return
			}
			p.ReplyJSON(m.Reply, storedMessage(7))
		})
		raw, err := s.At(t.Context(), s.stream, 7)
		require.NoError(t, err)
		require.Equal(t, "m", raw.Header.Get("Name"))
		require.Equal(t, "body", string(raw.Data))
		_, err = s.At(t.Context(), s.stream, 8)
		require.ErrorIs(t, err, jetstream.ErrMsgNotFound, "what the leader has not is gone")
		require.Equal(t, 2, direct, "the leader is asked only then")
	})
}

// What may pass is asked again, and any other answer of a leader is an answer.
func TestALeaderIsAskedAgainForWhatMayPass(t *testing.T) {
	const subject = "$JS.API.STREAM.MSG.GET.S"
	api := func(code int, errCode jetstream.ErrorCode) func(*natstest.Peer, natstest.Request) {
		return func(p *natstest.Peer, m natstest.Request) { p.ReplyError(m.Reply, code, errCode, "told by the script") }
	}
	for name, tt := range map[string]struct {
		first  func(*natstest.Peer, natstest.Request)
		passes bool
	}{
		"no responders":       {func(p *natstest.Peer, m natstest.Request) { p.NoResponders(m.Reply, subject) }, true},
		"silence":             {func(*natstest.Peer, natstest.Request) {}, true},
		"JetStream not ready": {api(503, jetstream.ErrorCode(10008)), true},
		"no leader":           {api(503, jetstream.ErrorCode(10009)), true},
		"stream not found":    {api(404, jetstream.JSErrCodeStreamNotFound), false},
		"bad request":         {api(400, jetstream.JSErrCodeBadRequest), false},
		"internal error":      {api(500, jetstream.ErrorCode(10005)), false},
		"no JSON":             {func(p *natstest.Peer, m natstest.Request) { p.Reply(m.Reply, []byte("{")) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := natstest.NewPeer(t)
				s := replicated(t, p)
				asked := 0
				p.OnRequest(subject, func(p *natstest.Peer, m natstest.Request) {
					if asked++; asked == 1 {
						tt.first(p, m)
						return
					}
					p.ReplyJSON(m.Reply, storedMessage(7))
				})
				begin := time.Now()
				raw, err := s.AskLeader(t.Context(), "S", "a.b")
				if !tt.passes {
					require.Error(t, err)
					require.Equal(t, 1, asked)
					require.Zero(t, time.Since(begin), "there is nothing to wait for")
					return
				}
				require.NoError(t, err)
				require.EqualValues(t, 7, raw.Sequence)
				require.Equal(t, 2, asked)
			})
		})
	}
}

// A leader that never comes is waited for as long as a write would.
func TestALeaderThatNeverComesIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := natstest.NewPeer(t)
		s := replicated(t, p)
		p.OnRequest("$JS.API.STREAM.MSG.GET.>", func(p *natstest.Peer, m natstest.Request) {
			p.ReplyError(m.Reply, 503, jetstream.ErrorCode(10009), "no leader")
		})
		begin := time.Now()
		_, err := s.AskLeader(t.Context(), "S", "a.b")
		require.ErrorContains(t, err, "no leader")
		require.InDelta(t, CommitTimeout, time.Since(begin), float64(retryPause))

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(fmt.Errorf("the client hung up"))
		_, err = s.AskLeader(ctx, "S", "a.b")
		require.Error(t, err)
	})
}
