package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// checkBrowser refuses what a page of another site has a browser ask for, where no admin token keeps it out. A page that has
// led a name of its own to this machine is of the same site for the browser, so that a listener on loopback goes by local
// names only (DNS rebinding).
func (a *API) checkBrowser(r *http.Request) error {
	if a.opts.AdminToken != "" {
		return nil
	}
	if err := a.crossOrigin.Check(r); err != nil {
		return &httpError{http.StatusForbidden, "a page of another site cannot do this while the broker has no admin token"}
	}
	if a.opts.Loopback && !localName(r.Host) {
		return &httpError{http.StatusForbidden, fmt.Sprintf("a listener on loopback without an admin token does not go by the name %q: use localhost or 127.0.0.1, or set an admin token", r.Host)}
	}
	return nil
}

// localName tells whether a Host header names this machine, and nothing that DNS could say does. Only old clients have none.
func localName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") // RFC 6761
}
