package perform

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/pulling"
)

func TestLines(t *testing.T) {
	var out bytes.Buffer
	l := &lines{to: pulling.NewPrinter(&out)}
	write := func(s string) {
		n, err := l.Write([]byte(s))
		require.NoError(t, err)
		require.Equal(t, len(s), n)
	}
	write("a")
	require.Empty(t, out.String())
	write("b\nc")
	require.Equal(t, "ab\n", out.String())
	write(strings.Repeat("x", maxLine))
	require.Equal(t, len("ab\nc")+maxLine, out.Len(), "a line that does not end is not kept for ever")
	write("end")
	require.NoError(t, l.flush())
	require.NoError(t, l.flush())
	require.True(t, strings.HasSuffix(out.String(), "xend\n"))

	_, gone := io.Pipe()
	require.NoError(t, gone.CloseWithError(io.ErrClosedPipe))
	_, err := (&lines{to: pulling.NewPrinter(gone)}).Write([]byte("x\n"))
	require.ErrorIs(t, err, pulling.ErrOutput)
}

func TestEnvironmentOfACommand(t *testing.T) {
	env, err := messageEnv(headersOnly{headers: nats.Header{"B-1": {"x", "y"}, "Zero": {"a\x00b"}}})
	require.NoError(t, err)
	require.Contains(t, env, "JETPULL_HEADER_B_1=x")
	require.Contains(t, env, `JETPULL_HEADERS={"B-1":["x","y"],"Zero":["a\u0000b"]}`)
	for _, v := range env {
		require.NotContains(t, v, "\x00", "exec would refuse all of the environment")
	}
	for name, want := range map[string]string{"X-Kind": "X_KIND", "a.b c": "A_B_C", "Größe": "GR__E", "": ""} {
		env, err = messageEnv(headersOnly{headers: nats.Header{name: {"x"}}})
		require.NoError(t, err)
		require.Contains(t, env, "JETPULL_HEADER_"+want+"=x")
	}
	env, err = messageEnv(headersOnly{})
	require.NoError(t, err)
	require.Contains(t, env, "JETPULL_HEADERS={}")
	require.Contains(t, env, "JETPULL_STREAM_SEQ=7")
}

// headersOnly is a message of which only the headers matter.
type headersOnly struct {
	jetstream.Msg
	headers nats.Header
}

func (m headersOnly) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: 7}}, nil
}
func (m headersOnly) Headers() nats.Header { return m.headers }
func (m headersOnly) Subject() string      { return "s" }
