package wire

import (
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// replies are reply subjects of both forms, and similar ones.
var replies = []string{
	"$JS.ACK.ORDERS.worker.2.1234.56.1700000000123456789.7", "$JS.ACK.hub.AbCdEf12.ORDERS.worker.2.1234.56.1700000000123456789.7",
	"$JS.ACK.hub.AbCdEf12.ORDERS.worker.2.1234.56.1700000000123456789.7.xyz", "$JS.ACK._.AbCdEf12.ORDERS.worker.2.1234.56.1700000000123456789.7",
	"$JS.ACK.hub.AbCdEf12.ORDERS.worker.2.1234.56.1700000000123456789.7.a.b.c.d.e.f.g.h.i", "$JS.ACK.S.C.1.2.3.4.5", "$JS.ACK.S.C.1.2.3.4.nonsense",
	"$JS.ACK.S.C.9999999999999999999.0.12345678.9223372036854775807.18446744073709551615",
	"", "$JS.ACK.", "$JS.ACK", "_INBOX.abc.def", "$JS.API.S.C.1.2.3.4.5", "$js.ack.S.C.1.2.3.4.5", "$JS.ACK.S.C.1.2.3.4", "$JS.ACK.hub.S.C.1.2.3.4.5",
	"$JS.ACK.......", "$JS.ACK..C.1.2.3.4.5", "$JS.ACK.S..1.2.3.4.5", "$JS.ACK.S.C.1..3.4.5", "$JS.ACK.S.C.1.2.3..5", "$JS.ACK.S.C.1.2x.3.4.5",
	"$JS.ACK.S.C.-1.2.3.4.5", "$JS.ACK.S.C.1.+2.3.4.5", "$JS.ACK.S.C.1.٢.3.4.5", "$JS.ACK.S.C.1.10000000000000000000.3.4.5",
	"$JS.ACK.S.C.1.99999999999999999999999.3.4.5", "$JS.ACK.S.C.1.1234/678.3.4.5", "$JS.ACK.S.C.1.1234:678.3.4.5",
	"$JS.ACK.S.C.1.2.3.9223372036854775808.5", "$JS.ACK.hub.acc.S.C.1.2.3.4x.5.tok", "$JS.ACK.S.C.1.18446744073709551616.3.4.5",
}

func TestParseAckReadsWhatIsPending(t *testing.T) {
	for i, want := range []uint64{7, 7, 7, 7, 7, 5, 0, 0} {
		a, ok := ParseAck("", replies[i])
		require.True(t, ok)
		require.Equal(t, want, a.Pending, replies[i])
	}
}

func TestParseAckDoesNotAllocate(t *testing.T) {
	for _, subject := range replies {
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = ParseAck("$JS.ACK.S.C.", subject) }), subject)
	}
}

// FuzzParseAck compares ParseAck with nats.go, which parses each subject that ParseAck accepts in the same way. The reverse is
// intentionally not true: nats.go parses a bad number as zero, wraps around on overflow and accepts empty names. ParseAck refuses
// these subjects, because no server sends them, and an ack to such a subject would be lost.
func FuzzParseAck(f *testing.F) {
	for _, subject := range replies {
		f.Add(subject)
	}
	f.Fuzz(func(t *testing.T, subject string) {
		got, ok := ParseAck("", subject)
		meta, err := (&nats.Msg{Reply: subject, Sub: &nats.Subscription{}}).Metadata()
		require.Equal(t, err == nil && wellFormed(subject), ok, subject)
		if !ok {
			require.Zero(t, got, subject)
			return
		}
		want := Ack{meta.NumDelivered, meta.Sequence.Stream, meta.Sequence.Consumer, meta.Timestamp.UnixNano(), got.Pending}
		if got.Pending > 0 {
			want.Pending = meta.NumPending
		}
		require.Equal(t, want, got, subject)
		if prefix := AckPrefix + meta.Stream + "." + meta.Consumer + "."; strings.Count(subject, ".") == 8 {
			got, ok = ParseAck(prefix, subject)
			require.True(t, ok && got == want, "%q: with its prefix got %+v, want %+v", subject, got, want)
		}
	})
}

// wellFormed reports, independently of ParseAck, whether a subject that nats.go accepts has names and numbers in the right places.
func wellFormed(subject string) bool {
	tokens := strings.Split(subject, ".")[2:]
	names := 2
	if len(tokens) > 7 {
		names = 4
	}
	if slices.Contains(tokens[:names], "") {
		return false
	}
	for i, number := range tokens[names : names+4] {
		if number == "" || len(number) > 19 || strings.Trim(number, "0123456789") != "" || i == 3 && len(number) == 19 && number > "9223372036854775807" {
			return false
		}
	}
	return true
}
