package wire

import (
	"math"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestParseAck(t *testing.T) {
	v1 := Ack{
		Stream: "ORDERS", Consumer: "worker", Delivered: 2, StreamSeq: 1234, ConsumerSeq: 56,
		Timestamp: 1700000000123456789, Pending: 7,
	}
	v2 := v1
	v2.Domain = "hub"
	noDomain := v2
	noDomain.Domain = ""
	const tail = "ORDERS.worker.2.1234.56.1700000000123456789.7"
	tests := []struct {
		name, subject string
		want          Ack
	}{
		{"nine tokens", "$JS.ACK." + tail, v1},
		{"eleven tokens", "$JS.ACK.hub.AbCdEf12." + tail, v2},
		{"twelve tokens", "$JS.ACK.hub.AbCdEf12." + tail + ".xyz", v2},
		{"twenty tokens", "$JS.ACK.hub.AbCdEf12." + tail + ".a.b.c.d.e.f.g.h.i", v2},
		{"no domain", "$JS.ACK._.AbCdEf12." + tail + ".xyz", noDomain},
		{
			"largest numbers", "$JS.ACK.S.C.18446744073709551615.0.18446744073709551615.9223372036854775807.18446744073709551615",
			Ack{
				Stream: "S", Consumer: "C", Delivered: math.MaxUint64, ConsumerSeq: math.MaxUint64,
				Timestamp: math.MaxInt64, Pending: math.MaxUint64,
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := ParseAck(tt.subject)
			require.True(t, ok)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestParseAckRefuses(t *testing.T) {
	for name, subject := range map[string]string{
		"nothing":                 "",
		"prefix alone":            "$JS.ACK.",
		"prefix without its dot":  "$JS.ACK",
		"an inbox":                "_INBOX.abc.def",
		"another API":             "$JS.API.S.C.1.2.3.4.5",
		"lower case":              "$js.ack.S.C.1.2.3.4.5",
		"eight tokens":            "$JS.ACK.S.C.1.2.3.4",
		"ten tokens":              "$JS.ACK.hub.S.C.1.2.3.4.5",
		"dots only":               "$JS.ACK.......",
		"empty stream":            "$JS.ACK..C.1.2.3.4.5",
		"empty consumer":          "$JS.ACK.S..1.2.3.4.5",
		"empty number":            "$JS.ACK.S.C.1..3.4.5",
		"empty last number":       "$JS.ACK.S.C.1.2.3.4.",
		"a letter":                "$JS.ACK.S.C.1.2x.3.4.5",
		"a minus sign":            "$JS.ACK.S.C.-1.2.3.4.5",
		"a plus sign":             "$JS.ACK.S.C.1.+2.3.4.5",
		"a digit that is no byte": "$JS.ACK.S.C.1.٢.3.4.5",
		"uint64 overflow by one":  "$JS.ACK.S.C.1.18446744073709551616.3.4.5",
		"uint64 overflow by far":  "$JS.ACK.S.C.1.99999999999999999999999.3.4.5",
		"time overflow":           "$JS.ACK.S.C.1.2.3.9223372036854775808.5",
		"v2 with a bad number":    "$JS.ACK.hub.acc.S.C.1.2.3.4.5x.tok",
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := ParseAck(subject)
			require.False(t, ok, "%q parsed as %+v", subject, got)
			require.Zero(t, got)
		})
	}
}

func TestParseAckDoesNotAllocate(t *testing.T) {
	for _, subject := range []string{
		"$JS.ACK.S.C.1.2.3.4.5",
		"$JS.ACK.hub.AbCdEf12.S.C.1.2.3.4.5.tok",
		"$JS.ACK.S.C.1.2.3.4.nonsense",
	} {
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = ParseAck(subject) }), subject)
	}
}

// FuzzParseAck holds ParseAck against nats.go's own reading of the same reply.
// nats.go reads each subject that ParseAck accepts in the same way. The reverse is not so,
// on purpose: nats.go reads a bad number as zero, wraps around on overflow and
// lets names be empty, where ParseAck refuses. Such a subject did not come
// from a server, and an ack sent to it would be lost.
func FuzzParseAck(f *testing.F) {
	for _, subject := range []string{
		"$JS.ACK.ORDERS.worker.2.1234.56.1700000000123456789.7",
		"$JS.ACK.hub.AbCdEf12.ORDERS.worker.2.1234.56.1700000000123456789.7.xyz",
		"$JS.ACK._.AbCdEf12.ORDERS.worker.2.1234.56.1700000000123456789.7",
		"$JS.ACK.S.C.1.18446744073709551616.3.4.5",
		"$JS.ACK.S.C.1.+2.3.4.5",
		"$JS.ACK..C.1.2.3.4.5",
		"$JS.ACK.a.S.C.1.2.3.4.5",
		"_INBOX.a.b",
	} {
		f.Add(subject)
	}
	f.Fuzz(func(t *testing.T, subject string) {
		got, ok := ParseAck(subject)
		msg := &nats.Msg{Reply: subject, Sub: &nats.Subscription{}}
		meta, err := msg.Metadata()
		if err != nil {
			if ok {
				t.Fatalf("%q parsed as %+v, and nats.go refuses it: %v", subject, got, err)
			}
			return
		}
		if !ok {
			if wellFormed(subject) {
				t.Fatalf("%q refused, and nats.go reads %+v", subject, meta)
			}
			return
		}
		want := Ack{
			Domain: meta.Domain, Stream: meta.Stream, Consumer: meta.Consumer,
			Delivered: meta.NumDelivered, StreamSeq: meta.Sequence.Stream, ConsumerSeq: meta.Sequence.Consumer,
			Timestamp: meta.Timestamp.UnixNano(), Pending: meta.NumPending,
		}
		if got != want {
			t.Fatalf("%q: got %+v, nats.go reads %+v", subject, got, want)
		}
	})
}

// wellFormed says, in another way than ParseAck does, whether a subject that
// nats.go accepts has names and numbers in the right places.
func wellFormed(subject string) bool {
	tokens := strings.Split(subject, ".")[2:]
	if len(tokens) > 7 {
		tokens = tokens[2:9]
	}
	if tokens[0] == "" || tokens[1] == "" {
		return false
	}
	for i, number := range tokens[2:] {
		limit := "18446744073709551615"
		if i == 3 {
			limit = "9223372036854775807"
		}
		digits := strings.TrimLeft(number, "0")
		if number == "" || strings.Trim(number, "0123456789") != "" ||
			len(digits) > len(limit) || (len(digits) == len(limit) && digits > limit) {
			return false
		}
	}
	return true
}

func BenchmarkParseAck(b *testing.B) {
	const subject = "$JS.ACK.hub.AbCdEf12.ORDERS.worker.2.1234.56.1700000000123456789.7.xyz"
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := ParseAck(subject); !ok {
			b.Fatal("refused")
		}
	}
}
