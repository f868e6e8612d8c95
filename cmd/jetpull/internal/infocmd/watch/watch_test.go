package watch

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/infocmd/consumer"
)

func TestScreenIsDrawnInPlace(t *testing.T) {
	var out bytes.Buffer
	v := &view{out: &out, inPlace: true}
	info := &jetstream.ConsumerInfo{Name: "c", Stream: "S", Config: jetstream.ConsumerConfig{Durable: "c"}}
	require.NoError(t, v.happened(problem(errors.New("jetpull: too early to be drawn"))))
	require.Empty(t, out.String())
	require.NoError(t, v.show(info, consumer.Observe(info, time.Now())))
	first := out.String()
	require.NotContains(t, first, "\x1b")
	require.Contains(t, first, " too early to be drawn\n")
	out.Reset()
	require.NoError(t, v.happened(advisory(jetpull.PinAdvisory{Group: "g", Reason: "timeout", Time: time.Now()})))
	second := out.String()
	rest, ok := strings.CutPrefix(second, fmt.Sprintf("\x1b[%dA\x1b[J", strings.Count(first, "\n")))
	require.True(t, ok, "%q", second)
	require.Equal(t, strings.Count(first, "\n")+1, strings.Count(rest, "\n"), "one event more")
	for range 3 * eventsShown {
		require.NoError(t, v.happened(problem(errors.New("again"))))
	}
	require.Len(t, v.last, eventsShown)
}
