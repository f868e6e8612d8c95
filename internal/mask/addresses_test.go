package mask

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"": "",
		`Post "http://ci.internal/hook": dial tcp 10.0.0.5:80: connect: connection refused`: `Post "http://ci.internal/hook": dial tcp …: connect: connection refused`,
		`Post "http://10.0.0.5:8080/hook": EOF`:                                             `Post "http://…/hook": EOF`,
		"read tcp 127.0.0.1:40000->[2001:db8::1]:443: read: connection reset by peer":       "read tcp …->…: read: connection reset by peer",
		"dial tcp: lookup ci.internal on 10.0.0.2:53: no such host":                         "dial tcp: lookup ci.internal on …: no such host",
		"dial tcp: lookup ci.internal on [fe80::1%lo]:53: server misbehaving":               "dial tcp: lookup ci.internal on …: server misbehaving",
		"address is not allowed for callbacks: ::; see networks":                            "address is not allowed for callbacks: …; see networks",
		"address is not allowed for callbacks: fe80::1":                                     "address is not allowed for callbacks: …",
		"the receiver answered 500 at 12:30:05.5, version 1.2.3, after 0.3 s: a: b.": "the receiver answered 500 at 12:30:05.5, version 1.2.3, " +
			"after 0.3 s: a: b.",
		"connect to 192.0.2.1. It failed": "connect to …. It failed",
	} {
		require.Equal(t, want, Addresses(text), text)
	}
}

func FuzzAddresses(f *testing.F) {
	f.Add("dial tcp ", []byte{10, 0, 0, 5}, uint16(80), ": refused")
	f.Add("on ", netip.MustParseAddr("fe80::1").AsSlice(), uint16(53), " no such host")
	f.Fuzz(func(t *testing.T, before string, ip []byte, port uint16, after string) {
		addr, ok := netip.AddrFromSlice(ip)
		if !ok || before != "" && !strings.HasSuffix(before, " ") || after != "" && !strings.HasPrefix(after, " ") {
			return
		}
		for _, address := range []string{addr.String(), netip.AddrPortFrom(addr, port).String()} {
			// A short one, such as ::, may be part of the other text.
			if got := Addresses(before + address + after); len(address) > 6 && !strings.Contains(before+after, address) && strings.Contains(got, address) {
				t.Errorf("%q is left in %q", address, got)
			}
		}
	})
}
