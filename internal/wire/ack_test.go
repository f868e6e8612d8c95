package wire

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestParseAck(t *testing.T) {
	want := Ack{Delivered: 2, StreamSeq: 1234, ConsumerSeq: 56, Timestamp: 1700000000123456789}
	const tail = "ORDERS.worker.2.1234.56.1700000000123456789.7"
	tests := []struct {
		name, subject string
		want          Ack
	}{
		{"nine tokens", "$JS.ACK." + tail, want},
		{"eleven tokens", "$JS.ACK.hub.AbCdEf12." + tail, want},
		{"twelve tokens", "$JS.ACK.hub.AbCdEf12." + tail + ".xyz", want},
		{"twenty tokens", "$JS.ACK.hub.AbCdEf12." + tail + ".a.b.c.d.e.f.g.h.i", want},
		{"no domain", "$JS.ACK._.AbCdEf12." + tail + ".xyz", want},
		{
			"largest numbers", "$JS.ACK.S.C.9999999999999999999.0.12345678.9223372036854775807.18446744073709551615",
			Ack{Delivered: 9999999999999999999, ConsumerSeq: 12345678, Timestamp: math.MaxInt64},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, prefix := range []string{"$JS.ACK.ORDERS.worker.", "$JS.ACK.other.worker.", ""} {
				got, ok := ParseAck(prefix, tt.subject)
				require.True(t, ok, prefix)
				require.Equal(t, tt.want, got, prefix)
			}
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
		"empty time":              "$JS.ACK.S.C.1.2.3..5",
		"a letter":                "$JS.ACK.S.C.1.2x.3.4.5",
		"a minus sign":            "$JS.ACK.S.C.-1.2.3.4.5",
		"a plus sign":             "$JS.ACK.S.C.1.+2.3.4.5",
		"a digit that is no byte": "$JS.ACK.S.C.1.٢.3.4.5",
		"twenty digits":           "$JS.ACK.S.C.1.10000000000000000000.3.4.5",
		"overflow by far":         "$JS.ACK.S.C.1.99999999999999999999999.3.4.5",
		"eight with a slash":      "$JS.ACK.S.C.1.1234/678.3.4.5",
		"eight with a colon":      "$JS.ACK.S.C.1.1234:678.3.4.5",
		"time overflow":           "$JS.ACK.S.C.1.2.3.9223372036854775808.5",
		"v2 with a bad number":    "$JS.ACK.hub.acc.S.C.1.2.3.4x.5.tok",
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := ParseAck("$JS.ACK.S.C.", subject)
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
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = ParseAck("$JS.ACK.S.C.", subject) }), subject)
	}
}

// FuzzParseAck holds ParseAck against nats.go's own reading of the same reply.
// nats.go reads each subject that ParseAck accepts in the same way. The reverse is not so, on purpose: nats.go reads a bad
// number as zero, wraps around on overflow and lets names be empty, where ParseAck refuses. Such a subject did not come
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
		got, ok := ParseAck("", subject)
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
			Delivered: meta.NumDelivered, StreamSeq: meta.Sequence.Stream, ConsumerSeq: meta.Sequence.Consumer,
			Timestamp: meta.Timestamp.UnixNano(),
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

func BenchmarkParseAck(b *testing.B) {
	const prefix, subject = "$JS.ACK.ORDERS.worker.", "$JS.ACK.ORDERS.worker.2.1234123.562345.1700000000123456789.7"
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := ParseAck(prefix, subject); !ok {
			b.Fatal("refused")
		}
	}
}

func TestVerbs(t *testing.T) {
	require.Equal(t, "+ACK", string(VerbAck))
	require.Equal(t, "+WPI", string(VerbProgress))

	require.Equal(t, `-NAK {"delay":1}`, string(Nak(1)))
	require.Equal(t, `-NAK {"delay":9223372036854775807}`, string(Nak(math.MaxInt64)))

	require.Equal(t, "+TERM bad order", string(Term("bad order")))
}
