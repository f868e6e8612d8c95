package httpserve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Proxies are the addresses of reverse proxies. Only what they say about a client is believed.
type Proxies []netip.Prefix

// ParseProxies reads addresses and networks, such as 10.0.0.0/8.
func ParseProxies(list []string) (Proxies, error) {
	var proxies Proxies
	for _, text := range list {
		if addr, err := netip.ParseAddr(text); err == nil {
			proxies = append(proxies, netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()))
			continue
		}
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q: give addresses such as 10.0.0.7, and networks such as 10.0.0.0/8, separated by commas", text)
		}
		if addr := network.Addr(); addr.Is4In6() { // addresses are compared without this form
			network = netip.PrefixFrom(addr.Unmap(), network.Bits()-96)
		}
		if !network.IsValid() {
			return nil, fmt.Errorf("%q: give an IPv4 network in its own form, such as 10.0.0.0/8", text)
		}
		proxies = append(proxies, network.Masked())
	}
	return proxies, nil
}

// CheckProxies returns what is wrong with a list for ParseProxies, or nil.
func CheckProxies(list []string) error {
	_, err := ParseProxies(list)
	return err
}

func (p Proxies) contain(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, network := range p {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// trust reports whether the other end of a connection is a proxy.
func (p Proxies) trust(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && p.contain(tcp.AddrPort().Addr())
}

// forwarded serves a request that came through a proxy as if it came from its client. The client is the last address of X-Forwarded-For that is
// not a proxy: those before it may be the client's own invention.
func (p Proxies) forwarded(next http.Handler) http.Handler {
	if len(p) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.trust(remote(r)) {
			r = r.WithContext(context.WithValue(r.Context(), viaProxy{}, true))
			r.RemoteAddr = p.client(r)
		}
		next.ServeHTTP(w, r)
	})
}

type viaProxy struct{}

// Proxied reports whether a request came through a trusted proxy, so that the headers that the proxy sets can be believed.
func Proxied(r *http.Request) bool { return r.Context().Value(viaProxy{}) != nil }

// client is the address of the client of a request from a proxy, with port 0, or that of the proxy if there is no other.
func (p Proxies) client(r *http.Request) string {
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		hop := strings.TrimSpace(hops[i])
		addr, err := netip.ParseAddr(strings.Trim(hop, "[]"))
		if err != nil {
			at, err := netip.ParseAddrPort(hop)
			if err != nil {
				break
			}
			addr = at.Addr()
		}
		if !p.contain(addr) {
			return netip.AddrPortFrom(addr, 0).String()
		}
	}
	return r.RemoteAddr
}
