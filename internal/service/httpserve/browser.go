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
	if crossOrigin.Check(r) != nil {
		return Refuse(http.StatusForbidden, "forbidden", "a page of another site cannot do this while there is no admin token")
	}
	if loopback && !LocalName(r.Host) {
		return Refuse(http.StatusForbidden, "forbidden", "a listener on loopback without an admin token does not go by the name %q: use localhost or 127.0.0.1, or set an admin token", r.Host)
	}
	return nil
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
