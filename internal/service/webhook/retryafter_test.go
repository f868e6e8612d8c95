package webhook

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const none = time.Duration(-1)
	for text, want := range map[string]time.Duration{
		"": none, "x": none, "-1": none, "NaN": none, "0": 0, "120": 2 * time.Minute, " 1.5 ": 1500 * time.Millisecond,
		"1e300": longestRetry, "Inf": longestRetry,
		"Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0, "Fri, 31 Dec 9999 23:59:59 GMT": longestRetry,
	} {
		got, asked := RetryAfter(http.Header{"Retry-After": {text}}, now)
		require.Equal(t, want != none, asked, text)
		require.Equal(t, max(want, 0), got, text)
	}
	_, asked := RetryAfter(http.Header{}, now)
	require.False(t, asked)
}
