package httpserve

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Proxies lists the addresses of reverse proxies. Only their headers about clients are trusted.
type Proxies []netip.Prefix

// ParseProxies parses addresses and networks, such as 10.0.0.0/8.
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
		if addr := network.Addr(); addr.Is4In6() { // addresses are compared in their IPv4 form
			network = netip.PrefixFrom(addr.Unmap(), network.Bits()-96)
		}
		if !network.IsValid() {
			return nil, fmt.Errorf("%q: give an IPv4 network in its own form, such as 10.0.0.0/8", text)
		}
		proxies = append(proxies, network.Masked())
	}
	return proxies, nil
}

// CheckProxies returns an error if ParseProxies cannot parse a list.
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

// trust reports whether a remote address is that of a proxy.
func (p Proxies) trust(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && p.contain(tcp.AddrPort().Addr())
}

// client returns the address of the client of a proxy's request, with port 0: the last one in X-Forwarded-For that is not a proxy, because the client
// may have invented the addresses before it. If there is none, client returns the proxy's address.
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
