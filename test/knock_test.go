package test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// A knock of Consume is a pull that can bring nothing. What makes it of use is that
// the server always says something to it, and that it costs no message and no pin.
func TestTheServerAnswersEveryKnock(t *testing.T) {
	t.Parallel()
	const knock = `{"batch":1,"max_bytes":1,"expires":600000000}`
	const grouped = `{"batch":1,"max_bytes":1,"expires":600000000,"group":"g"}`
	pinned := jetstream.ConsumerConfig{
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"g"}, PinnedTTL: time.Minute,
	}
	for name, tc := range map[string]struct {
		cfg    jetstream.ConsumerConfig
		before func(*testing.T, *rig, *nats.Conn)
		knock  string
		want   string // its status
		atOnce bool
	}{
		"nothing to deliver": {want: "Request Timeout"},
		"a message": {
			before: func(t *testing.T, r *rig, _ *nats.Conn) {
				r.publish(t, 1)
				r.pending(t, 1)
			},
			want: "Message Size Exceeds MaxBytes", atOnce: true,
		},
		"MaxAckPending": {
			cfg: jetstream.ConsumerConfig{MaxAckPending: 1},
			before: func(t *testing.T, r *rig, nc *nats.Conn) {
				r.publish(t, 2)
				rawPull(t, nc, `{"batch":1}`)
				r.ackPending(t, 1)
				r.pending(t, 1)
			},
			want: "Request Timeout",
		},
		"a full queue": {
			cfg: jetstream.ConsumerConfig{MaxWaiting: 1},
			before: func(t *testing.T, r *rig, nc *nats.Conn) {
				rawPull(t, nc, `{"batch":1,"expires":60000000000}`)
				r.waiting(t, 1)
			},
			want: "Exceeded MaxWaiting", atOnce: true,
		},
		"no pin yet": {
			cfg: pinned, knock: grouped,
			before: func(t *testing.T, r *rig, _ *nats.Conn) {
				r.publish(t, 1)
				r.pending(t, 1)
			},
			want: "Message Size Exceeds MaxBytes", atOnce: true,
		},
		"another's pin": {
			cfg: pinned, knock: grouped,
			before: func(t *testing.T, r *rig, nc *nats.Conn) {
				r.publish(t, 2)
				rawPull(t, nc, `{"batch":1,"expires":60000000000,"group":"g"}`)
				r.ackPending(t, 1)
				r.pending(t, 1)
			},
			want: "Request Timeout",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.consumer(t, tc.cfg)
			nc := connect(t, r.server.URL())
			if tc.before != nil {
				tc.before(t, r, nc)
			}
			before := infoOf(t, r)
			body := tc.knock
			if body == "" {
				body = knock
			}
			sent := time.Now()
			m, err := rawPull(t, nc, body).NextMsg(5 * time.Second)
			require.NoError(t, err)
			require.Empty(t, m.Reply, "a message: %q", m.Data)
			require.Equal(t, tc.want, m.Header.Get("Description"))
			require.Equal(t, tc.atOnce, time.Since(sent) < 500*time.Millisecond, "%v", time.Since(sent))
			after := infoOf(t, r)
			require.Equal(t, before.NumPending, after.NumPending)
			require.Equal(t, before.NumAckPending, after.NumAckPending)
			require.Equal(t, before.PriorityGroups, after.PriorityGroups, "no pin is gained or lost")
		})
	}
}

func infoOf(t *testing.T, r *rig) *jetstream.ConsumerInfo {
	t.Helper()
	c, err := lookUp(t, r.js, "S", "C")
	require.NoError(t, err)
	return c.CachedInfo()
}
