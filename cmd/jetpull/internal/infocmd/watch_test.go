package infocmd

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
)

func TestRates(t *testing.T) {
	at := func(seconds int64, delivered, stream uint64, unacked int, pending uint64) state {
		return state{Time: time.Unix(seconds, 0), Delivered: position{Consumer: delivered, Stream: stream}, AckPending: unacked, Pending: pending}
	}
	require.Equal(t, &rates{Delivered: 50, Acked: 45, Pending: -30}, between(at(10, 100, 100, 10, 90), at(12, 200, 200, 20, 30)))
	require.Equal(t, &rates{Delivered: 50, Acked: 50}, between(at(10, 100, 900, 0, 9), at(12, 200, 1900, 0, 9)), "others' messages are between")
	require.Equal(t, &rates{Delivered: 50}, between(at(10, 100, 100, 7, 9), at(12, 200, 100, 7, 9)), "all are redelivered, and none acknowledged")
	require.Equal(t, &rates{Delivered: 50, Acked: 5}, between(at(10, 150, 100, 27, 9), at(12, 250, 100, 17, 9)), "ten of them are")
	require.Nil(t, between(at(10, 1, 1, 0, 1), at(10, 2, 2, 0, 2)), "no time has passed")
	require.Nil(t, between(at(10, 100, 100, 0, 0), at(11, 5, 5, 0, 0)), "it is another consumer")
}

func TestScreenIsDrawnInPlace(t *testing.T) {
	var out bytes.Buffer
	v := &screenView{out: &out}
	info := &jetstream.ConsumerInfo{Name: "c", Stream: "S", Config: jetstream.ConsumerConfig{Durable: "c"}}
	require.NoError(t, v.problem(errors.New("jetpull: too early to be drawn")))
	require.Empty(t, out.String())
	require.NoError(t, v.show(info, observe(info, time.Now())))
	first := out.String()
	require.NotContains(t, first, "\x1b")
	require.Contains(t, first, " too early to be drawn\n")
	out.Reset()
	require.NoError(t, v.advisory(jetpull.PinAdvisory{Group: "g", Reason: "timeout", Time: time.Now()}))
	second := out.String()
	rest, ok := strings.CutPrefix(second, fmt.Sprintf("\x1b[%dA\x1b[J", strings.Count(first, "\n")))
	require.True(t, ok, "%q", second)
	require.Equal(t, strings.Count(first, "\n")+1, strings.Count(rest, "\n"), "one event more")
	for range 3 * eventsShown {
		require.NoError(t, v.problem(errors.New("again")))
	}
	require.Len(t, v.last, eventsShown)
}

func TestAgo(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for d, want := range map[time.Duration]string{
		1234 * time.Millisecond: "1.2s ago", 75*time.Second + 1: "1m15s ago",
		3*time.Hour + 10*time.Second: "3h0m0s ago", -time.Second: "0s ago",
	} {
		require.Equal(t, want, ago(now.Add(-d), now))
	}
}
