package journal

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/test/servertest"
)

// behind is a proxy between a node and the server. It plays a leader of three that has not applied the last messages yet, while
// the replica that the node follows has.
type behind struct {
	nc      *nats.Conn
	created time.Time     // of the messages stream
	applied atomic.Uint64 // the last message that the leader has; 0: no bound
	asks    atomic.Int64  // after this many requests for a message or the state it has all
}

const behindAPI = "BEHIND.API"

// openBehind opens a store whose requests go through a [behind].
func openBehind(t *testing.T, srv *servertest.Server) (*Store, *behind) {
	t.Helper()
	b := &behind{nc: srv.Connect(t)}
	sub, err := b.nc.Subscribe(behindAPI+".>", func(m *nats.Msg) {
		if err := b.pass(m); !errors.Is(err, nats.ErrConnectionClosed) { // a request that arrived while the test ended
			assert.NoError(t, err)
		}
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, sub.Unsubscribe()) })
	require.NoError(t, b.nc.Flush())
	js, err := jetstream.NewWithAPIPrefix(srv.Connect(t), behindAPI)
	require.NoError(t, err)
	s, err := openAs(t.Context(), js, Config{Shared: true})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	s.reader = jsstream.NewReader(js, 3, s.link.Await)
	b.created = s.quorum.created["broker_messages"]
	return s, b
}

// pass forwards a request to the server, or answers it like a leader of the messages stream that is behind.
func (b *behind) pass(m *nats.Msg) error {
	request := strings.TrimPrefix(m.Subject, behindAPI+".")
	applied := b.applied.Load()
	ofMessages := request == "STREAM.INFO.broker_messages" || request == "STREAM.MSG.GET.broker_messages"
	switch {
	case applied == 0:
	case ofMessages && b.asks.Add(-1) == 0:
		b.applied.Store(0)
	case strings.HasPrefix(request, "DIRECT.GET.broker_messages"):
		return m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}}})
	case request == "STREAM.MSG.GET.broker_messages":
		return m.Respond([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`))
	case request == "STREAM.INFO.broker_messages":
		answer, err := json.Marshal(jetstream.StreamInfo{
			Config:  jetstream.StreamConfig{Name: "broker_messages"},
			Created: b.created,
			State:   jetstream.StreamState{Msgs: applied, FirstSeq: 1, LastSeq: applied},
			Cluster: &jetstream.ClusterInfo{Replicas: []*jetstream.PeerInfo{{Name: "2"}, {Name: "3"}}},
		})
		if err != nil {
			return err
		}
		return m.Respond(answer)
	}
	return b.nc.PublishMsg(&nats.Msg{Subject: "$JS.API." + request, Reply: m.Reply, Data: m.Data}) // some requests await no answer
}

// A node has read a message that the stream's leader has not applied yet. The node keeps its jobs, and schedules likewise.
func TestALeaderThatIsBehindForgetsNothing(t *testing.T) {
	srv := servertest.RunServer(t)
	other := shared(t, srv)
	k := makeConsumer(t, other, "ch", "k", domain.Pull)
	first := appendMessage(t, other, "ch", "first", 0)
	s, leader := openBehind(t, srv)
	leader.applied.Store(first.Seq)
	m := appendMessage(t, other, "ch", "m", 0)
	id := domain.JobID{Seq: m.Seq, Consumer: k.Number}
	require.Eventually(t, func() bool { return len(s.Index.Queue.Queued(k.Number, 5)) == 2 }, 10*time.Second, time.Millisecond)

	soon, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // several requests
	defer cancel()
	messages, err := s.Messages.InOrder(soon, []uint64{m.Seq})
	require.ErrorIs(t, err, domain.ErrUnavailable)
	require.Empty(t, messages)
	require.Len(t, s.Index.Queue.Queued(k.Number, 5), 2, "the job was forgotten")
	require.Len(t, other.Index.Queue.Queued(k.Number, 5), 2, "the other node was made to forget it")
	claimed, err := s.Jobs.PutJob(t.Context(), domain.Job{ID: id, Status: domain.Inflight, ChangedAt: time.Now()})
	require.NoError(t, err)
	for _, err := range []error{
		s.Messages.forgetGone(soon, m.Seq, domain.SubjectToken("ch")),
	} {
		require.ErrorIs(t, err, domain.ErrUnavailable)
	}
	now, err := s.Jobs.Refresh(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, claimed.Revision, now.Revision)

	// The leader applies the message during the read.
	leader.asks.Store(3)
	messages, err = s.Messages.InOrder(t.Context(), []uint64{m.Seq})
	require.NoError(t, err)
	require.Equal(t, "m", messages[0].ID)
}

// A worker reports a job on a node that has not read its message yet, and the leader has not applied it either. The answer is
// ErrUnavailable, not ErrNotFound.
func TestAJobBeyondTheLeaderIsNotKnownNow(t *testing.T) {
	srv := servertest.RunServer(t)
	other := shared(t, srv)
	k := makeConsumer(t, other, "ch", "k", domain.Pull)
	m := appendMessage(t, other, "ch", "m", 0)
	s, leader := openBehind(t, srv)
	leader.applied.Store(m.Seq)
	_, err := s.Jobs.Job(t.Context(), domain.JobID{Seq: m.Seq + 1, Consumer: k.Number})
	require.ErrorIs(t, err, domain.ErrUnavailable)
	leader.applied.Store(0)
	_, err = s.Jobs.Job(t.Context(), domain.JobID{Seq: m.Seq + 1, Consumer: k.Number})
	require.ErrorIs(t, err, domain.ErrNotFound)
}

// A listed schedule that the leader does not have yet is not dropped, and the answer is not ErrNotFound.
func TestAScheduleBeyondTheLeaderIsNotKnownNow(t *testing.T) {
	srv := servertest.RunServer(t)
	other := shared(t, srv)
	first := appendMessage(t, other, "ch", "first", 0)
	s, leader := openBehind(t, srv)
	leader.applied.Store(first.Seq)
	require.NoError(t, other.Messages.Schedule(t.Context(), domain.Message{ID: "s", Channel: "ch"}, time.Now().Add(time.Hour)))
	require.Eventually(t, func() bool { return s.Index.CountScheduled("ch").Pending == 1 }, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, s.Messages.CancelScheduled(t.Context(), "ch", "s"), domain.ErrUnavailable)
	_, err := s.Messages.Append(t.Context(), domain.Message{ID: "s", Channel: "ch", Payload: []byte("x")})
	require.ErrorIs(t, err, domain.ErrDuplicateMessage)
	soon, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = s.Messages.InOrder(soon, s.Index.ScheduledSeqs("ch", 0, domain.Page{Limit: 5}))
	require.ErrorIs(t, err, domain.ErrUnavailable)
	require.Equal(t, 1, s.Index.CountScheduled("ch").Pending)
	leader.applied.Store(0)
	require.NoError(t, s.Messages.CancelScheduled(t.Context(), "ch", "s"))
}

// Another node has deleted a message, and its notice was lost. Prune takes the message for deleted and continues.
func TestPruneOfAMessageThatAnotherNodeDeleted(t *testing.T) {
	srv := servertest.RunServer(t)
	s := shared(t, srv)
	m := appendMessage(t, s, "ch", "m", 0)
	appendMessage(t, s, "ch", "stays", 0)
	require.NoError(t, s.messageStream.DeleteMsg(t.Context(), m.Seq))
	_, err := s.Messages.Prune(t.Context(), []uint64{m.Seq})
	require.NoError(t, err)
	require.Equal(t, 1, s.Index.CountMessages("ch"))
}

// A start waits for the last message that the leader has, whichever server the node reads from. It does not wait for a deleted
// one.
func TestAStartReadsUpToTheLeader(t *testing.T) {
	s := shared(t, servertest.RunServer(t))
	for _, id := range []string{"a", "b", "deleted"} {
		appendMessage(t, s, "ch", id, 0)
	}
	for _, next := range []struct{ delete, last uint64 }{{0, 3}, {3, 2}, {1, 2}, {2, 0}} {
		if next.delete > 0 {
			require.NoError(t, s.messageStream.DeleteMsg(t.Context(), next.delete))
		}
		run, stop := context.WithCancel(t.Context())
		f, seen := s.messageFeed, jsstream.NewProgress()
		f.Seen, f.Known, f.See = seen, nil, func(*nats.Msg, *nats.MsgMetadata) {}
		require.NoError(t, jsstream.Follow(t.Context(), run, &s.running, f))
		require.EqualValues(t, 3, seen.Reached())

		if next.last > 0 {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			f.Seen, f.See = jsstream.NewProgress(), func(_ *nats.Msg, meta *nats.MsgMetadata) {
				if meta.Sequence.Stream == next.last {
					cancel()
					<-ended
				}
			}
			err := jsstream.Follow(ctx, run, &s.running, f)
			close(ended)
			require.ErrorIs(t, err, context.Canceled, "it does not wait for the last message")
		}
		stop()
	}
}
