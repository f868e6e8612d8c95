package httpserve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errWrongToken = errors.New("wrong token")

// guessFrom is a request from an address.
func guessFrom(address string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/v1/receivers", nil)
	r.RemoteAddr = address
	return r
}

func TestLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		failed := 0
		l := NewLogins(3, slog.New(slog.NewTextHandler(&log, nil)), func() { failed++ })
		guess := func(address string) error { return l.Refuse(guessFrom(address), "guess", errWrongToken) }
		for range 3 {
			require.Equal(t, errWrongToken, guess("192.0.2.1:1"))
			time.Sleep(time.Second)
		}
		require.Equal(t, errWrongToken, l.Refuse(guessFrom("192.0.2.1:1"), "", errWrongToken), "no token is not a wrong one")
		require.Equal(t, errWrongToken, guess("192.0.2.2:1"))

		began := time.Now()
		err, ok := errors.AsType[*Error](guess("192.0.2.1:2"))
		require.True(t, ok, "ports do not count")
		require.Equal(t, http.StatusTooManyRequests, err.Status)
		require.Equal(t, "57", err.Header["Retry-After"])
		require.Equal(t, guessWait, time.Since(began))

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		require.Error(t, l.Refuse(guessFrom("192.0.2.1:1").WithContext(gone), "guess", errWrongToken))
		require.Zero(t, time.Since(began), "nobody waits for a client that has gone")

		require.Equal(t, 6, failed)
		require.Equal(t, 4, strings.Count(log.String(), "level=WARN"), "those beyond the limit are counted only: %s", &log)
		require.Contains(t, log.String(), "address=192.0.2.1")
		require.Contains(t, log.String(), "max-failed-logins-per-minute")
		time.Sleep(57 * time.Second)
		require.Equal(t, errWrongToken, guess("192.0.2.1:1"))

		for i := range loginSites + 10 {
			_ = guess(fmt.Sprintf("[2001:db8:%x:%x::1]:1", i>>16, i&0xffff))
		}
		require.LessOrEqual(t, len(l.wrong), loginSites+1)
		require.NotEqual(t, errWrongToken, guess("192.0.2.77:1"), "addresses beyond the limit count as one")
		require.NotEqual(t, errWrongToken, guess("not an address"))

		unlimited := NewLogins(0, slog.New(slog.DiscardHandler), func() { failed++ })
		for range 100 {
			require.Equal(t, errWrongToken, unlimited.Refuse(guessFrom("192.0.2.1:1"), "guess", errWrongToken))
		}
	})
}

// A flood of wrong tokens holds a bounded number of goroutines. Beyond it, the answer ends the connection.
func TestLoginsHoldLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLogins(1, slog.New(slog.DiscardHandler), func() {})
		_ = l.Refuse(guessFrom("192.0.2.1:1"), "guess", errWrongToken)
		const guesses = 3 * mostWaiting
		var closed atomic.Int64
		var flood sync.WaitGroup
		began := time.Now()
		for range guesses {
			flood.Go(func() {
				err, _ := errors.AsType[*Error](l.Refuse(guessFrom("192.0.2.1:1"), "guess", errWrongToken))
				if err.Status == http.StatusTooManyRequests && err.Header["Connection"] == "close" {
					closed.Add(1)
				}
			})
		}
		synctest.Wait()
		require.EqualValues(t, guesses-mostWaiting, closed.Load())
		flood.Wait()
		require.Equal(t, guessWait, time.Since(began))
		require.Empty(t, l.waiting)
	})
}
