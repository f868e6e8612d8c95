package httpserve

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

var crossOrigin http.CrossOriginProtection

// checkBrowser protects a server without an admin token: it refuses changes that a page of another site makes through a browser. A page can make its
// own host name resolve to this machine (DNS rebinding). For the browser, that name is the page's own site. So a listener on loopback accepts local
// names only.
func checkBrowser(r *http.Request, loopback bool) error {
	if OtherSite(r) {
		return Refuse(http.StatusForbidden, "forbidden", "a page of another site cannot do this while there is no admin token")
	}
	if loopback && !OwnName(r) {
		return Refuse(http.StatusForbidden, "forbidden", "a listener on loopback without an admin token does not go by the name %q: use localhost or "+
			"127.0.0.1, or set an admin token, or the public URL", r.Host)
	}
	return nil
}

// OtherSite reports whether a browser makes a change for a page of another site. Behind a proxy, the system's own site may have the host of the
// public URL, or the host that was requested from the proxy.
func OtherSite(r *http.Request) bool {
	b := baseOf(r)
	hosts := []string{r.Host, b.host}
	if b.public != nil {
		hosts = append(hosts, b.public.Host)
	}
	for _, host := range hosts {
		asked := *r
		asked.Host = host
		if host != "" && crossOrigin.Check(&asked) == nil {
			return false
		}
	}
	return true
}

// OwnName reports whether the Host header of a request names this machine or the host of the public URL.
func OwnName(r *http.Request) bool {
	public := baseOf(r).public
	return LocalName(r.Host) || public != nil && strings.EqualFold(r.Host, public.Host)
}

// LocalName reports whether a Host header names this machine, whatever DNS answers. It accepts an empty one, which only old clients send.
func LocalName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") // RFC 6761
}

// proxied reports whether a proxy forwarded a request.
func proxied(h http.Header) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if _, ok := h[name]; ok {
			return true
		}
	}
	return false
}
