package wire

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// requestJSON has the field names by which nats-server reads a pull request.
type requestJSON struct {
	Batch         int           `json:"batch"`
	Expires       time.Duration `json:"expires"`
	NoWait        bool          `json:"no_wait"`
	Heartbeat     time.Duration `json:"idle_heartbeat"`
	MaxBytes      int           `json:"max_bytes"`
	Group         string        `json:"group"`
	MinPending    int64         `json:"min_pending"`
	MinAckPending int64         `json:"min_ack_pending"`
	Priority      int           `json:"priority"`
	ID            string        `json:"id"`
}

func TestRequestJSON(t *testing.T) {
	tests := []struct {
		name string
		req  Request
		want string
	}{
		{"zero value", Request{}, `{"batch":0}`},
		{"no wait", Request{Batch: 1, NoWait: true}, `{"batch":1,"no_wait":true}`},
		{"long pull", Request{Batch: 10, Expires: 5 * time.Second}, `{"batch":10,"expires":5000000000}`},
		{
			"one-shot",
			Request{Batch: 10, Expires: 900 * time.Millisecond, NoWait: true},
			`{"batch":10,"expires":900000000,"no_wait":true}`,
		},
		{
			"everything",
			Request{
				Batch: 500, MaxBytes: 1 << 20, Expires: 30 * time.Second, NoWait: true, Heartbeat: 5 * time.Second,
				Group: "jobs", MinPending: 7, MinAckPending: 8, ID: "abc", Priority: 9,
			},
			`{"batch":500,"expires":30000000000,"no_wait":true,"idle_heartbeat":5000000000,"max_bytes":1048576,` +
				`"group":"jobs","min_pending":7,"min_ack_pending":8,"priority":9,"id":"abc"}`,
		},
		{
			"extremes",
			Request{Batch: math.MinInt, MaxBytes: math.MaxInt, Expires: math.MinInt64, MinPending: math.MaxInt64},
			`{"batch":-9223372036854775808,"expires":-9223372036854775808,"max_bytes":9223372036854775807,` +
				`"min_pending":9223372036854775807}`,
		},
		{"quoting", Request{Group: `a"b\c`, ID: "\x00\n\x1f\x7fé"}, `{"batch":0,"group":"a\"b\\c","id":"\u0000\n\u001f` + "\x7fé\"}"},
		{"bad UTF-8", Request{ID: "a\xffb\xe2\x82"}, `{"batch":0,"id":"a\ufffdb\ufffd\ufffd"}`},
		{"a real U+FFFD", Request{ID: "a\ufffdb"}, `{"batch":0,"id":"a` + "\ufffd" + `b"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, string(tt.req.JSON()))
		})
	}
}

func FuzzRequestJSON(f *testing.F) {
	f.Add(1, 0, int64(0), true, int64(0), "", int64(0), int64(0), "", 0)
	f.Add(-5, 1<<20, int64(time.Minute), false, int64(time.Second), `a"\b`, int64(3), int64(-4), "\xff\x00 ", 9)
	f.Fuzz(func(t *testing.T, batch, maxBytes int, expires int64, noWait bool, heartbeat int64,
		group string, minPending, minAckPending int64, id string, priority int,
	) {
		req := Request{
			Batch: batch, MaxBytes: maxBytes, Expires: time.Duration(expires), NoWait: noWait,
			Heartbeat: time.Duration(heartbeat), Group: group, MinPending: minPending,
			MinAckPending: minAckPending, ID: id, Priority: priority,
		}
		body := req.JSON()
		if !json.Valid(body) || !utf8.Valid(body) {
			t.Fatalf("%+v became %q, which is not JSON", req, body)
		}
		if !strings.HasPrefix(string(body), `{"batch":`) {
			t.Fatalf("%+v became %q, which does not begin with the batch", req, body)
		}
		var got requestJSON
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		// JSON has no way to carry bytes that are not UTF-8.
		req.Group, req.ID = asUTF8(group), asUTF8(id)
		want := requestJSON(req)
		if got != want {
			t.Fatalf("%q reads back as %+v, want %+v", body, got, want)
		}
	})
}

// asUTF8 replaces each bad byte by U+FFFD, one for one: strings.ToValidUTF8
// would make one of a run.
func asUTF8(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}

func BenchmarkRequestJSON(b *testing.B) {
	req := &Request{Batch: 100, Expires: 5 * time.Second, Group: "jobs", ID: "4nHxQ1yQ2cFJ0Pz5tTqS9B"}
	b.ReportAllocs()
	for b.Loop() {
		_ = req.JSON()
	}
}
