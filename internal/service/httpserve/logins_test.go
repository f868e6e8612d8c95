package httpserve

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		failed := 0
		l := NewLogins(3, slog.New(slog.NewTextHandler(&log, nil)), func() { failed++ })
		from := func(address string) *http.Request {
			r := httptest.NewRequest(http.MethodGet, "/v1/receivers", nil)
			r.RemoteAddr = address
			return r
		}
		for range 3 {
			require.Zero(t, l.Wait(from("192.0.2.1:1")))
			require.NoError(t, l.Failed(from("192.0.2.1:1")))
			time.Sleep(time.Second)
		}
		require.Equal(t, 57*time.Second, l.Wait(from("192.0.2.1:2")), "ports do not count")
		require.Zero(t, l.Wait(from("192.0.2.2:1")))
		require.EqualError(t, l.Failed(from("192.0.2.1:1")), "too many wrong tokens from this address: no admin token is accepted for 57 s")
		require.Equal(t, 4, failed)
		require.Equal(t, 3, strings.Count(log.String(), "level=WARN"), "those beyond the limit are counted only: %s", &log)
		require.Contains(t, log.String(), "address=192.0.2.1")
		require.Contains(t, log.String(), "max-failed-logins-per-minute")
		time.Sleep(57 * time.Second)
		require.Zero(t, l.Wait(from("192.0.2.1:1")))

		for i := range loginSites + 10 {
			_ = l.Failed(from(fmt.Sprintf("[2001:db8:%x:%x::1]:1", i>>16, i&0xffff)))
		}
		require.LessOrEqual(t, len(l.wrong), loginSites+1)
		require.NotZero(t, l.Wait(from("192.0.2.77:1")), "addresses beyond the limit count as one")
		require.NotZero(t, l.Wait(from("not an address")))

		unlimited := NewLogins(0, slog.New(slog.DiscardHandler), func() { failed++ })
		for range 100 {
			require.NoError(t, unlimited.Failed(from("192.0.2.1:1")))
		}
		require.Zero(t, unlimited.Wait(from("192.0.2.1:1")))
	})
}
