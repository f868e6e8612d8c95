package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConditions has every status that nats-server 2.15 sends to a pull.
func TestConditions(t *testing.T) {
	for _, tt := range []struct {
		code int
		text string
		is   Condition
		what Class
	}{
		{100, "Idle Heartbeat", Heartbeat, Alive},
		{400, "Bad Request - priority group missing", BadRequest, Config},
		{404, "No Messages", NoMessages, Empty},
		{408, "Request Timeout", Expired, Over},
		{408, "Requests Pending", RequestsPending, Empty},
		{408, "Interest Expired", InterestExpired, Over},
		{409, "Batch Completed", BatchCompleted, Over},
		{409, "Message Size Exceeds MaxBytes", MaxBytes, Over},
		{409, "Exceeded MaxRequestBatch of 10", LimitExceeded, Config},
		{409, "Exceeded MaxRequestExpires of 1s", LimitExceeded, Config},
		{409, "Exceeded MaxRequestMaxBytes of 100", LimitExceeded, Config},
		{409, "Exceeded MaxWaiting", MaxWaiting, Retry},
		{409, "Consumer Deleted", ConsumerDeleted, Terminal},
		{409, "Consumer is push based", PushConsumer, Terminal},
		{409, "Leadership Change", LeadershipChange, Retry},
		{409, "Server Shutdown", ServerShutdown, Retry},
		{412, "Required Api Level", BadRequest, Config},
		{423, "Nats-Pin-Id mismatch", PinMismatch, Pin},
		{423, "Nats-Wrong-Pin-Id", PinMismatch, Pin},
		{503, "", NoResponders, Retry},
		// An unknown condition is worth another try; some versions write a text in another case.
		{409, "Something Else", OtherStatus, Retry},
		{499, "Newer", OtherStatus, Retry},
		{409, "consumer deleted", ConsumerDeleted, Terminal},
		{408, "", Expired, Over},
	} {
		require.Equal(t, tt.is, conditionOf(tt.code, tt.text), "%d %s", tt.code, tt.text)
		require.Equal(t, tt.what, tt.is.Class(), "%d %s", tt.code, tt.text)
	}
	require.Equal(t, NoClass, NoCondition.Class(), "of a pull that no status has ended")
}
