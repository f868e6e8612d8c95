package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRequestJSON(t *testing.T) {
	for want, req := range map[string]Request{
		`{"batch":0}`:                {},
		`{"batch":1,"no_wait":true}`: {Batch: 1, NoWait: true},
		`{"batch":500,"expires":30000000000,"no_wait":true,"idle_heartbeat":5000000000,"max_bytes":1048576,` +
			`"group":"jobs","min_pending":7,"min_ack_pending":8,"priority":9,"id":"a\"\\b"}`: {
			Batch: 500, MaxBytes: 1 << 20, Expires: 30 * time.Second, NoWait: true, Heartbeat: 5 * time.Second,
			Group: "jobs", MinPending: 7, MinAckPending: 8, ID: `a"\b`, Priority: 9,
		},
	} {
		require.Equal(t, want, string(req.JSON()))
	}
}
