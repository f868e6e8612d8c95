package infocmd

import (
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
