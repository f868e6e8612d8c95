package natstest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const clientStream = "CONNECT {\"verbose\":false}\r\n" +
	"PING\r\n" +
	"SUB _INBOX.a.* 1\r\n" +
	"SUB work queue 2\r\n" +
	"UNSUB 1 6\r\n" +
	"PUB a.b _INBOX.a.1 12\r\nPUB x 3\r\nab\n\r\n" +
	"HPUB a 18 21\r\nNATS/1.0\r\nA: b\r\n\r\nxyz\r\n" +
	"pub empty 0\r\n\r\n" +
	"UNSUB 2\r\nPONG\r\n"

func parseInPieces(t *testing.T, stream string, size int) []Op {
	t.Helper()
	var ops []Op
	parser := opParser{emit: func(op Op) { ops = append(ops, op) }}
	for len(stream) > 0 {
		n := min(size, len(stream))
		require.NoError(t, parser.feed([]byte(stream[:n])))
		stream = stream[n:]
	}
	require.Zero(t, parser.missing)
	require.Empty(t, parser.line)
	return ops
}

func TestParserCutsAtAnyBorder(t *testing.T) {
	want := []string{
		`[0] CONNECT "{\"verbose\":false}"`,
		"[0] PING",
		"[0] SUB _INBOX.a.* 1",
		"[0] SUB work queue 2",
		"[0] UNSUB 1 max 6",
		`[0] PUB a.b _INBOX.a.1 "PUB x 3\r\nab\n"`,
		`[0] HPUB a "xyz"`,
		"[0] PUB empty",
		"[0] UNSUB 2",
		"[0] PONG",
	}
	for size := 1; size <= len(clientStream); size++ {
		ops := parseInPieces(t, clientStream, size)
		var got []string
		for _, op := range ops {
			got = append(got, op.String())
		}
		require.Equal(t, want, got, "in pieces of %d bytes", size)
		require.Equal(t, "NATS/1.0\r\nA: b\r\n\r\n", string(ops[6].Header))
	}
}

func TestParserRefuses(t *testing.T) {
	for _, stream := range []string{
		"GET / HTTP/1.1\r\n",
		"PUB a\r\n",
		"PUB a b c 1\r\n",
		"PUB a -1\r\n",
		"PUB a x\r\n",
		"HPUB a 9 5\r\n",
		"SUB a\r\n",
		"UNSUB\r\n",
		"UNSUB 1 x\r\n",
		strings.Repeat("x", maxControlLine+1),
	} {
		parser := opParser{emit: func(Op) {}}
		require.Error(t, parser.feed([]byte(stream)), "%.40q", stream)
	}
}

func TestSubjectMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a.b", false},
		{"a.b", "a", false},
		{"*", "a", true},
		{"*", "a.b", false},
		{"a.*.c", "a.b.c", true},
		{"a.*.c", "a.b.d", false},
		{">", "a", true},
		{">", "a.b", true},
		{"a.>", "a", false},
		{"a.>", "a.b", true},
		{"a.>", "a.b.c", true},
		{"a.*", "a.b.c", false},
		{"a.>", "b.c", false},
	} {
		require.Equal(t, c.want, SubjectMatches(c.pattern, c.subject), "%s %s", c.pattern, c.subject)
	}
}

func FuzzParser(f *testing.F) {
	f.Add([]byte(clientStream), 7)
	f.Add([]byte("PUB a 5\r\n"), 1)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		parse := func(pieces ...[]byte) (ops []string, failed bool) {
			parser := opParser{emit: func(op Op) { ops = append(ops, op.String()) }}
			for _, piece := range pieces {
				if parser.feed(piece) != nil {
					return ops, true
				}
			}
			return ops, false
		}
		all, failedAll := parse(stream)
		at := max(0, min(cut, len(stream)))
		cutOps, failedCut := parse(stream[:at], stream[at:])
		require.Equal(t, all, cutOps, "a cut after %d bytes changes what is read", at)
		require.Equal(t, failedAll, failedCut)
	})
}
