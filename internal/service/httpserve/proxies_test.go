package httpserve

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForwardedAddresses(t *testing.T) {
	t.Parallel()
	proxies, err := ParseProxies([]string{"10.0.0.7", "192.0.2.0/24", "2001:db8::/32"})
	require.NoError(t, err)
	for _, tt := range []struct {
		peer      string
		forwarded []string
		want      string
	}{
		{"10.0.0.7:1", nil, "10.0.0.7:1"},
		{"10.0.0.7:1", []string{"203.0.113.9"}, "203.0.113.9:0"},
		{"10.0.0.7:1", []string{"127.0.0.1, 203.0.113.9, 192.0.2.3"}, "203.0.113.9:0"},
		{"10.0.0.7:1", []string{"127.0.0.1", "203.0.113.9:4711"}, "203.0.113.9:0"},
		{"[::ffff:10.0.0.7]:1", []string{"[2001:db9::1]"}, "[2001:db9::1]:0"},
		{"[2001:db8::1]:1", []string{"203.0.113.9"}, "203.0.113.9:0"},
		{"10.0.0.7:1", []string{"203.0.113.9, nonsense"}, "10.0.0.7:1"},
		{"10.0.0.7:1", []string{"192.0.2.3"}, "10.0.0.7:1"},
		{"10.0.0.8:1", []string{"203.0.113.9"}, "10.0.0.8:1"},
		{"10.0.0.7:1", []string{"127.0.0.1", "", "203.0.113.9"}, "203.0.113.9:0"},
		{"10.0.0.7:1", []string{"127.0.0.1, 10.0.0.7"}, "127.0.0.1:0"},
		{"10.0.0.7:1", []string{"127.0.0.1, "}, "10.0.0.7:1"},
		{"10.0.0.7:1", []string{"127.0.0.1, [::ffff:203.0.113.9]:80"}, "[::ffff:203.0.113.9]:0"},
		{"nonsense", []string{"203.0.113.9"}, "nonsense"},
	} {
		got := ""
		h := based(nil, proxies, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr }))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = tt.peer
		r.Header["X-Forwarded-For"] = tt.forwarded
		h.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, tt.want, got, "%+v", tt)
	}
	mapped, err := ParseProxies([]string{"::ffff:10.1.0.0/112", "::ffff:192.0.2.1"})
	require.NoError(t, err)
	require.Equal(t, Proxies{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("192.0.2.1/32")}, mapped)
	for _, wrong := range []string{"10.0.0.0/33", "::ffff:10.0.0.0/95", "10.0.0.0/", "", "proxy"} {
		_, err = ParseProxies([]string{wrong})
		require.ErrorContains(t, err, strconv.Quote(wrong))
	}
}
