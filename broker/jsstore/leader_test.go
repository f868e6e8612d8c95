package jsstore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/internal/natstest"
)

// replicated is a store on a stream of three copies that a script plays.
func replicated(t *testing.T, p *natstest.Peer) *Store {
	t.Helper()
	nc := p.Connect(t, nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
	js := natstest.JetStream(t, nc)
	cfg := Config{Replicas: 3}.withDefaults()
	p.OnRequest("$JS.API.STREAM.INFO."+cfg.messages(), func(p *natstest.Peer, m natstest.Request) {
		p.ReplyJSON(m.Reply, map[string]any{"config": jetstream.StreamConfig{Name: cfg.messages(), AllowDirect: true}})
	})
	stream, err := js.Stream(t.Context(), cfg.messages())
	require.NoError(t, err)
	s := &Store{cfg: cfg, nc: nc, js: js, log: cfg.Logger, messageStream: stream, cache: newPayloadCache(cfg.CacheBytes)}
	run, stop := context.WithCancel(context.Background())
	var watch func(context.Context)
	s.link, watch = watchLink(nc)
	s.reader = &reader{nc: nc, js: js, link: s.link, replicas: cfg.Replicas}
	s.running.Go(func() { watch(run) })
	t.Cleanup(func() {
		stop()
		s.running.Wait()
	})
	return s
}

// storedMessage is a leader's answer to STREAM.MSG.GET.
func storedMessage(t *testing.T, seq uint64, id string) map[string]any {
	t.Helper()
	envelope, err := encodeEnvelope(broker.Message{ID: id, Channel: "ch", ReceivedAt: time.Now()}, time.Time{})
	require.NoError(t, err)
	header := []byte("NATS/1.0\r\n" + headerEnvelope + ": " + envelope + "\r\n\r\n")
	return map[string]any{"message": map[string]any{"seq": seq, "hdrs": header, "data": []byte("body"), "time": time.Now()}}
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
		p.OnRequest("$JS.API.STREAM.MSG.GET."+s.cfg.messages(), func(p *natstest.Peer, m natstest.Request) {
			if string(m.Body) != `{"seq":7}` {
				p.ReplyError(m.Reply, 404, jetstream.JSErrCodeMessageNotFound, "no message found")
				return
			}
			p.ReplyJSON(m.Reply, storedMessage(t, 7, "m"))
		})
		messages, err := s.MessagesAt(t.Context(), []uint64{7, 8})
		require.NoError(t, err)
		require.Len(t, messages, 1, "what the leader has not is gone")
		require.Equal(t, "m", messages[7].ID)
		require.Equal(t, "ch", messages[7].Channel)
		require.Equal(t, "body", string(messages[7].Payload))
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
					p.ReplyJSON(m.Reply, storedMessage(t, 7, "m"))
				})
				begin := time.Now()
				raw, err := s.askLeader(t.Context(), "S", "a.b")
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
		_, err := s.askLeader(t.Context(), "S", "a.b")
		require.ErrorContains(t, err, "no leader")
		require.InDelta(t, commitTimeout, time.Since(begin), float64(retryPause))

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(fmt.Errorf("the client hung up"))
		_, err = s.askLeader(ctx, "S", "a.b")
		require.Error(t, err)
	})
}
