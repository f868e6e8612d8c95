package httpserve

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

var crossOrigin http.CrossOriginProtection

// checkBrowser is for a server that asks nobody for a token: it refuses what a page of another site has a browser change. A page
// that has led a name of its own to this machine is of the same site for the browser, so that a listener on loopback
// goes by local names only (DNS rebinding).
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

// OtherSite reports whether a page of another site has a browser change something. Behind a proxy the site has the host of the public URL, or
// that which the proxy was asked for.
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

// OwnName reports whether the Host header of a request names this machine, or the host of the public URL.
func OwnName(r *http.Request) bool {
	public := baseOf(r).public
	return LocalName(r.Host) || public != nil && strings.EqualFold(r.Host, public.Host)
}

// LocalName reports whether a Host header names this machine, and nothing that DNS could say does. Only old clients have none.
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

// proxied reports whether a proxy has passed a request on.
func proxied(h http.Header) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if _, ok := h[name]; ok {
			return true
		}
	}
	return false
}
