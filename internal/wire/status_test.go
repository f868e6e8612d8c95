package wire

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// decode parses a raw header block as nats.go does.
func decode(t *testing.T, raw string) nats.Header {
	t.Helper()
	h, err := nats.DecodeHeadersMsg([]byte(raw))
	require.NoError(t, err)
	return h
}

func TestParseStatus(t *testing.T) {
	const expired, msgs, bytes = "NATS/1.0 408 X\r\n", "Nats-Pending-Messages: ", "\r\nNats-Pending-Bytes: "
	none := Status{Code: 408, Description: "X"}
	for raw, want := range map[string]Status{
		"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 12\r\nNats-Last-Stream: 345": {Code: 100, Description: "Idle Heartbeat"},
		"NATS/1.0 404 No Messages":                           {Code: 404, Description: "No Messages"},
		expired + msgs + "3" + bytes + "0":                   {Code: 408, Description: "X", PendingMsgs: 3, HasPending: true},
		expired + msgs + "0" + bytes + "9000":                {Code: 408, Description: "X", PendingBytes: 9000, HasPending: true},
		"NATS/1.0 503":                                       {Code: 503},
		"NATS/1.0 409 Consumer Deleted\r\nStatus: 404":       {Code: 409, Description: "Consumer Deleted"}, // the status line wins
		expired + "Nats-Pending-Messages: 3":                 none,
		expired + "Nats-Pending-Bytes: 3":                    none,
		expired + msgs + "-1" + bytes + "3":                  none,
		expired + msgs + "3" + bytes + "many":                none,
		expired + msgs + "9223372036854775807" + bytes + "1": {Code: 408, Description: "X", PendingMsgs: math.MaxInt64, PendingBytes: 1, HasPending: true},
		expired + msgs + "9223372036854775808" + bytes + "1": none,
		"NATS/1.0\r\nA: b":                                   {}, // {} is refused
		"NATS/1.0 abc":                                       {},
		"NATS/1.0 042 Answer":                                {},
		"NATS/1.0\r\nStatus: 4040":                           {},
		"NATS/1.0 +40 X":                                     {},
		"NATS/1.0\r\nStatus: ":                               {},
	} {
		got, ok := ParseStatus(decode(t, raw+"\r\n\r\n"))
		require.Equal(t, want.Code > 0, ok, raw)
		require.Equal(t, ok, got.Condition != NoCondition, raw)
		got.Condition = NoCondition
		require.Equal(t, want, got, raw)
	}
	_, ok := ParseStatus(nil)
	require.False(t, ok, "a frame without a header")
}

// The server appends its pin id after the headers that the user stored.
func TestPinIDIsTheServers(t *testing.T) {
	require.Equal(t, "real", PinID(decode(t, "NATS/1.0\r\nNats-Pin-Id: forged\r\nNats-Pin-Id: real\r\n\r\n")))
	require.Empty(t, PinID(nil))
}

// FuzzParseStatus takes any bytes for a frame's header block, as a peer may send them.
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
			require.Zero(t, s, "%q is refused", raw)
			return
		}
		require.True(t, s.Code >= 100 && s.Code <= 999 && strings.Contains(string(raw), strconv.Itoa(s.Code)), "%q has no status %d", raw, s.Code)
		require.True(t, s.PendingMsgs >= 0 && s.PendingBytes >= 0, "%q has negative pending: %+v", raw, s)
		require.True(t, s.HasPending || s.PendingMsgs == 0 && s.PendingBytes == 0, "%q: pending without HasPending: %+v", raw, s)
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
	require.NotEmpty(t, values, "%s is %d without a header", key, got)
	want, err := strconv.ParseInt(values[len(values)-1], 10, 64)
	require.NoError(t, err)
	require.Equal(t, want, got, "%s %q", key, values)
}
