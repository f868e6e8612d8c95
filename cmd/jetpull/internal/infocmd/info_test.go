package infocmd

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

// The view of info --watch begins with the rates, and fits a terminal with ten lines of 40 columns.
func TestView(t *testing.T) {
	now := time.Now()
	s := state{
		Stream: "ORDERS", Consumer: "worker", Time: now, Pending: 12_345_678, AckPending: 1000, MaxPending: 1000, Redelivered: 12, Waiting: 5,
		Rates: &rates{Delivered: 12345.6, Acked: 12345.6, Pending: -234.5}, PauseUntil: &now,
	}
	lines := strings.Split(strings.TrimSuffix(s.view(), "\n"), "\n")
	require.Less(t, len(lines), 10)
	require.Equal(t, []string{"delivered     12346/s", "acknowledged  12346/s", "pending       12,345,678  -234/s", "ack pending   1,000 of 1,000"}, lines[1:5])
	for _, line := range lines {
		require.LessOrEqual(t, len(line), 40, line)
	}
	s.Rates, s.MaxPending = nil, 0
	require.Contains(t, s.view(), "ack pending   1,000 of any number\n")
}
