package wire

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// decode reads a raw header block in the way that nats.go does for a frame.
func decode(t *testing.T, raw string) nats.Header {
	t.Helper()
	h, err := nats.DecodeHeadersMsg([]byte(raw))
	require.NoError(t, err)
	return h
}

func TestParseStatus(t *testing.T) {
	tests := []struct {
		name, raw string
		want      Status
	}{
		{
			"idle heartbeat", "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 12\r\nNats-Last-Stream: 345\r\n\r\n",
			Status{Code: 100, Description: "Idle Heartbeat"},
		},
		{"no messages", "NATS/1.0 404 No Messages\r\n\r\n", Status{Code: 404, Description: "No Messages"}},
		{
			"expiry", "NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\nNats-Pending-Bytes: 0\r\n\r\n",
			Status{Code: 408, Description: "Request Timeout", PendingMsgs: 3, HasPending: true},
		},
		{
			"batch completed", "NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: 0\r\nNats-Pending-Bytes: 9000\r\n\r\n",
			Status{Code: 409, Description: "Batch Completed", PendingBytes: 9000, HasPending: true},
		},
		{"no responders", "NATS/1.0 503\r\n\r\n", Status{Code: 503}},
		{"the status line wins", "NATS/1.0 409 Consumer Deleted\r\nStatus: 404\r\n\r\n", Status{Code: 409, Description: "Consumer Deleted"}},
		{"messages without bytes", "NATS/1.0 408 X\r\nNats-Pending-Messages: 3\r\n\r\n", Status{Code: 408, Description: "X"}},
		{"bytes without messages", "NATS/1.0 408 X\r\nNats-Pending-Bytes: 3\r\n\r\n", Status{Code: 408, Description: "X"}},
		{
			"negative", "NATS/1.0 408 X\r\nNats-Pending-Messages: -1\r\nNats-Pending-Bytes: 3\r\n\r\n",
			Status{Code: 408, Description: "X"},
		},
		{
			"not a number", "NATS/1.0 408 X\r\nNats-Pending-Messages: 3\r\nNats-Pending-Bytes: many\r\n\r\n",
			Status{Code: 408, Description: "X"},
		},
		{
			"largest", "NATS/1.0 408 X\r\nNats-Pending-Messages: 9223372036854775807\r\nNats-Pending-Bytes: 1\r\n\r\n",
			Status{Code: 408, Description: "X", PendingMsgs: math.MaxInt64, PendingBytes: 1, HasPending: true},
		},
		{
			"too large", "NATS/1.0 408 X\r\nNats-Pending-Messages: 9223372036854775808\r\nNats-Pending-Bytes: 1\r\n\r\n",
			Status{Code: 408, Description: "X"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := ParseStatus(decode(t, tt.raw))
			require.True(t, ok)
			require.NotEqual(t, NoCondition, got.Condition)
			got.Condition = NoCondition
			require.Equal(t, tt.want, got)
		})
	}
}

func TestParseStatusRefuses(t *testing.T) {
	for name, raw := range map[string]string{
		"no status":      "NATS/1.0\r\nA: b\r\n\r\n",
		"letters":        "NATS/1.0 abc\r\n\r\n",
		"under 100":      "NATS/1.0 042 Answer\r\n\r\n",
		"four digits":    "NATS/1.0\r\nStatus: 4040\r\n\r\n",
		"a signed code":  "NATS/1.0 +40 X\r\n\r\n",
		"an empty value": "NATS/1.0\r\nStatus: \r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := ParseStatus(decode(t, raw))
			require.False(t, ok, "parsed as %+v", got)
			require.Zero(t, got)
		})
	}
	_, ok := ParseStatus(nil)
	require.False(t, ok, "a frame without a header")
}

// On data the server appends its pin id behind whatever the user stored.
func TestPinIDIsTheServers(t *testing.T) {
	require.Equal(t, "real", PinID(decode(t, "NATS/1.0\r\nNats-Pin-Id: forged\r\nNats-Pin-Id: real\r\n\r\n")))
	require.Empty(t, PinID(nil))
}

// FuzzParseStatus takes any bytes for a frame's header block, as a peer may
// send them.
func FuzzParseStatus(f *testing.F) {
	for _, raw := range []string{
		"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 12\r\nNats-Last-Stream: 345\r\n\r\n",
		"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\nNats-Pending-Bytes: 18446744073709551615\r\n\r\n",
		"NATS/1.0 409 Batch Completed\r\nNats-Pending-Messages: -3\r\nNats-Pending-Bytes: 0\r\n\r\n",
		"NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n",
		"NATS/1.0 503\r\n\r\n",
		"NATS/1.0\r\nStatus: 404\r\nNats-Pin-Id: x\r\n\r\n",
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := nats.DecodeHeadersMsg(raw)
		if err != nil {
			return
		}
		s, ok := ParseStatus(h)
		if !ok {
			if s != (Status{}) {
				t.Fatalf("refused %q, and yet returned %+v", raw, s)
			}
			return
		}
		if s.Code < 100 || s.Code > 999 || !strings.Contains(string(raw), strconv.Itoa(s.Code)) {
			t.Fatalf("%q has no status %d", raw, s.Code)
		}
		if s.PendingMsgs < 0 || s.PendingBytes < 0 {
			t.Fatalf("%q has negative pending: %+v", raw, s)
		}
		if !s.HasPending && (s.PendingMsgs != 0 || s.PendingBytes != 0) {
			t.Fatalf("%q: pending without HasPending: %+v", raw, s)
		}
		if s.HasPending {
			checkLast(t, h, HeaderPendingMsgs, s.PendingMsgs)
			checkLast(t, h, HeaderPendingBytes, s.PendingBytes)
		}
	})
}

// checkLast checks a number against strconv's reading of the header.
func checkLast(t *testing.T, h nats.Header, key string, got int64) {
	t.Helper()
	values := h[key]
	if len(values) == 0 {
		t.Fatalf("%s is %d without a header", key, got)
	}
	want, err := strconv.ParseInt(values[len(values)-1], 10, 64)
	if err != nil || want != got {
		t.Fatalf("%s %q read as %d", key, values, got)
	}
}
