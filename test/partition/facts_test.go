package partition

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

// The facts that package partition stands on, seen on a server. DESIGN.md lists them.

const factGroup = "member"

// factEnv is a stream with a pinned consumer, on one server or three.
type factEnv struct {
	t        *testing.T
	js       jetstream.JetStream
	nc       *nats.Conn
	cluster  *servertest.Cluster
	consumer jetstream.Consumer
}

func facts(t *testing.T, replicas int, retention jetstream.RetentionPolicy) *factEnv {
	t.Helper()
	e := &factEnv{t: t}
	if replicas == 1 {
		e.nc = servertest.RunServer(t).Connect(t)
	} else {
		e.cluster = servertest.RunCluster(t)
		e.nc = e.cluster.Connect(t)
	}
	e.js = natstest.JetStream(t, e.nc)
	_, err := e.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}, Replicas: replicas, Retention: retention})
	require.NoError(t, err)
	e.consumer, err = e.js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{
		Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute, MaxAckPending: 256,
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{factGroup}, PinnedTTL: time.Minute,
	})
	require.NoError(t, err)
	if e.cluster != nil {
		e.cluster.WaitReady(t, "S", "c")
	}
	for n := range 10 {
		_, err := e.js.Publish(t.Context(), fmt.Sprintf("s.%d", n), nil)
		require.NoError(t, err)
	}
	return e
}

// client is a handle of its own, so nats.go keeps a pin of its own.
func (e *factEnv) client() jetstream.Consumer {
	c, err := e.js.Consumer(e.t.Context(), "S", "c")
	require.NoError(e.t, err)
	return c
}

// fetch pulls until it has n messages, over what a leader change does to pulls.
func (e *factEnv) fetch(c jetstream.Consumer, n int) (msgs []jetstream.Msg) {
	deadline := time.Now().Add(30 * time.Second)
	for len(msgs) < n && time.Now().Before(deadline) {
		batch, err := c.Fetch(n-len(msgs), jetstream.FetchPriorityGroup(factGroup), jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			continue
		}
		for m := range batch.Messages() {
			msgs = append(msgs, m)
		}
	}
	require.Len(e.t, msgs, n)
	return msgs
}

func (e *factEnv) reset() {
	if v := e.nc.ConnectedServerVersion(); strings.HasPrefix(v, "2.11.") || strings.HasPrefix(v, "2.12.") {
		e.t.Skipf("server %s cannot reset a consumer", v)
	}
	require.Eventually(e.t, func() bool {
		ctx, cancel := context.WithTimeout(e.t.Context(), 2*time.Second)
		defer cancel()
		_, err := e.js.ResetConsumer(ctx, "S", "c")
		return err == nil
	}, time.Minute, 50*time.Millisecond)
}

func (e *factEnv) unpin() {
	require.Eventually(e.t, func() bool {
		ctx, cancel := context.WithTimeout(e.t.Context(), 2*time.Second)
		defer cancel()
		return jetpull.Unpin(ctx, e.js, "S", "c", factGroup) == nil
	}, time.Minute, 50*time.Millisecond)
}

func sequences(msgs []jetstream.Msg) (seqs []uint64, counts []uint64) {
	for _, m := range msgs {
		meta, _ := m.Metadata()
		seqs, counts = append(seqs, meta.Sequence.Stream), append(counts, meta.NumDelivered)
	}
	return seqs, counts
}

// A reset begins again at the acknowledgement floor, in order, whatever was handed back in whatever order.
func TestFactResetGoesToTheFloorInOrder(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		for retention, want := range map[jetstream.RetentionPolicy][]uint64{
			jetstream.LimitsPolicy:    {1, 2, 3, 4, 5, 6, 7, 8},
			jetstream.WorkQueuePolicy: {1, 3, 4, 6, 7, 8},
			jetstream.InterestPolicy:  {1, 3, 4, 6, 7, 8},
		} {
			if testing.Short() && replicas > 1 && retention != jetstream.LimitsPolicy {
				continue // a cluster for each takes long
			}
			t.Run(fmt.Sprintf("R%d %v", replicas, retention), func(t *testing.T) {
				e := facts(t, replicas, retention)
				old := e.fetch(e.client(), 6)
				require.NoError(t, old[1].DoubleAck(t.Context())) // 2 and 5
				require.NoError(t, old[4].DoubleAck(t.Context()))
				require.NoError(t, old[5].Nak())
				require.NoError(t, old[0].Nak())
				e.unpin()
				if e.cluster != nil { // a leader change between the two changes nothing
					e.cluster.StepDownConsumer(t, "S", "c")
				}
				e.reset()
				seqs, counts := sequences(e.fetch(e.client(), len(want)))
				require.Equal(t, want, seqs)
				require.Equal(t, slices.Repeat([]uint64{1}, len(want)), counts, "delivery counts begin again")
			})
		}
	}
}

// Without a reset, what was handed back comes in the order of the NAKs.
func TestFactHandBackKeepsTheOrderOfNaks(t *testing.T) {
	e := facts(t, 1, jetstream.LimitsPolicy)
	old := e.fetch(e.client(), 3)
	for _, n := range []int{2, 0, 1} {
		require.NoError(t, old[n].Nak())
	}
	_, err := e.nc.RequestWithContext(t.Context(), old[1].Reply(), []byte("+WPI")) // which is answered when the NAKs are taken in
	require.NoError(t, err)
	e.unpin()
	seqs, _ := sequences(e.fetch(e.client(), 4))
	require.Equal(t, []uint64{3, 1, 2, 4}, seqs)
}

// After a reset, a late acknowledgement of the former owner settles its message, although the new owner has it; a late NAK does nothing.
func TestFactLateAcknowledgements(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprintf("R%d", replicas), func(t *testing.T) {
			e := facts(t, replicas, jetstream.LimitsPolicy)
			old := e.fetch(e.client(), 6)
			e.unpin()
			e.reset()
			now := e.fetch(e.client(), 2) // 1 and 2
			require.NoError(t, old[0].DoubleAck(t.Context()))
			require.NoError(t, old[1].Nak()) // its consumer sequence is not over what the consumer has delivered since
			require.NoError(t, old[5].Nak()) // it is here
			require.NoError(t, e.nc.Flush())
			require.Eventually(t, func() bool {
				info, err := e.consumer.Info(t.Context())
				return err == nil && info.AckFloor.Stream == 1 && info.NumAckPending == 1
			}, 30*time.Second, 20*time.Millisecond)
			_ = now
		})
	}
}

// A pull with a pin that was taken gets status 423, and messages go to the new owner alone.
func TestFactPullOfTheFormerOwner(t *testing.T) {
	e := facts(t, 1, jetstream.LimitsPolicy)
	former := e.client()
	e.fetch(former, 2)
	e.unpin()
	e.reset()
	e.fetch(e.client(), 1)
	batch, err := former.Fetch(1, jetstream.FetchPriorityGroup(factGroup), jetstream.FetchMaxWait(2*time.Second))
	require.NoError(t, err)
	for range batch.Messages() {
		t.Error("a message for the former owner")
	}
	require.ErrorIs(t, batch.Error(), jetstream.ErrPinIDMismatch)
}
