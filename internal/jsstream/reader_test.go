package jsstream

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/stored"
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
	return &replica{NewReader(js, 3, func(context.Context) error { return nil }), stream}
}

// storedMessage is a leader's answer to STREAM.MSG.GET.
func storedMessage(seq uint64) map[string]any {
	return map[string]any{"message": map[string]any{
		"seq": seq, "hdrs": []byte("NATS/1.0\r\nName: m\r\n\r\n"), "data": []byte("body"),
		"time": time.Now(),
	}}
}

// A replica that lags says that there is no such message, and so does a leader that has not applied it yet. It is gone only if one answer of the
// leader shows that it has applied it, too.
func TestOnlyADeleteIsNotFound(t *testing.T) {
	state := func(first, last uint64, deleted ...uint64) jetstream.StreamState {
		return jetstream.StreamState{FirstSeq: first, LastSeq: last, Deleted: deleted}
	}
	for name, tt := range map[string]struct {
		next   []uint64                // what the leader has from 7 on, at one request after the other; 0: nothing
		states []jetstream.StreamState // of the stream, at one request after the other
		single bool                    // there is one copy
		want   error                   // nil: the message
	}{
		"the replica lags":                    {next: []uint64{7}},
		"a later message is there":            {next: []uint64{9}, want: stored.ErrNotFound},
		"the leader lags":                     {next: []uint64{0, 0, 7}, states: []jetstream.StreamState{state(1, 6), state(1, 6)}},
		"the leader lags, and it was deleted": {next: []uint64{0, 8}, states: []jetstream.StreamState{state(1, 6)}, want: stored.ErrNotFound},
		"the leader goes on lagging":          {next: []uint64{0}, states: []jetstream.StreamState{state(1, 6)}, want: stored.ErrUnavailable},
		"the stream of the leader is empty":   {next: []uint64{0}, states: []jetstream.StreamState{state(0, 0)}, want: stored.ErrUnavailable},
		"all was deleted":                     {next: []uint64{0}, states: []jetstream.StreamState{state(8, 7)}, want: stored.ErrNotFound},
		"the end was deleted": {
			next: []uint64{0}, states: []jetstream.StreamState{state(1, 8), state(1, 8, 3, 7, 8)},
			want: stored.ErrNotFound,
		},
		"the leader changes":     {next: []uint64{0, 7}, states: []jetstream.StreamState{state(1, 8), state(1, 6, 3)}},
		"the leader cannot read": {next: []uint64{0}, states: []jetstream.StreamState{state(1, 8, 3)}, want: stored.ErrUnavailable},
		"there is one copy":      {next: []uint64{0}, states: []jetstream.StreamState{state(1, 6)}, single: true, want: stored.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := natstest.NewPeer(t)
				s := replicated(t, p)
				p.OnRequest("$JS.API.DIRECT.GET.>", func(p *natstest.Peer, m natstest.Request) { p.Status(m.Reply, 404, "Message Not Found") })
				p.OnRequest("$JS.API.STREAM.MSG.GET.M", func(p *natstest.Peer, m natstest.Request) {
					require.JSONEq(t, `{"seq":7,"next_by_subj":">"}`, string(m.Body))
					seq := tt.next[0]
					tt.next = tt.next[min(1, len(tt.next)-1):]
					if seq == 0 {
						p.ReplyError(m.Reply, 404, jetstream.JSErrCodeMessageNotFound, "no message found")
						return
					}
					p.ReplyJSON(m.Reply, storedMessage(seq))
				})
				p.OnRequest("$JS.API.STREAM.INFO.M", func(p *natstest.Peer, m natstest.Request) {
					info := jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: "M"}, State: tt.states[0]}
					tt.states = tt.states[min(1, len(tt.states)-1):]
					if len(m.Body) == 0 {
						info.State.Deleted = nil
					}
					if !tt.single {
						info.Cluster = &jetstream.ClusterInfo{Replicas: make([]*jetstream.PeerInfo, 2)}
					}
					p.ReplyJSON(m.Reply, info)
				})
				raw, err := s.At(t.Context(), s.stream, 7)
				require.ErrorIs(t, err, tt.want)
				if tt.want == nil {
					require.Equal(t, "m", raw.Header.Get("Name"))
					require.Equal(t, "body", string(raw.Data))
				}
			})
		})
	}
}

// A request is repeated after an error that may pass. Any other answer of a leader is final.
func TestALeaderIsAskedAgainForWhatMayPass(t *testing.T) {
	const subject = "$JS.API.STREAM.MSG.GET.S"
	api := func(code int, errCode jetstream.ErrorCode) func(*natstest.Peer, natstest.Request) {
		return func(p *natstest.Peer, m natstest.Request) { p.ReplyError(m.Reply, code, errCode, "by the script") }
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
		require.InDelta(t, CommitTimeout, time.Since(begin), float64(RetryPause))

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(fmt.Errorf("the client hung up"))
		_, err = s.AskLeader(ctx, "S", "a.b")
		require.Error(t, err)
	})
}

// An answer that is lost with its leader is not waited for for ever, also if the caller sets no deadline.
func TestAnAnswerThatIsLostIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := natstest.NewPeer(t)
		s := replicated(t, p)
		p.OnRequest("$JS.API.STREAM.MSG.GET.>", func(*natstest.Peer, natstest.Request) {})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := Next(ctx, s.js, "M", 1, "a.b")
			ended <- err
		}()
		select {
		case err := <-ended:
			require.ErrorIs(t, err, context.DeadlineExceeded)
		case <-time.After(time.Minute):
			t.Error("it is waited for")
			cancel()
			<-ended
		}
	})
}
