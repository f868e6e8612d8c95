package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// longestRetry bounds what an answer asks for, so that it is a Duration.
const longestRetry = 365 * 24 * time.Hour

// RetryAfter reads the header Retry-After, which is seconds, here also with a fraction, or a date (RFC 9110, 10.2.3). It reports
// false where the header is missing or neither. A date that is over is 0, and more than a year is a year.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, longestRetry.Seconds()) * float64(time.Second)), true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(0, at.Sub(now)), longestRetry), true
}
