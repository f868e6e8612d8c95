package httpserve

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// limitWarning is the minimum interval between two log lines about refused connections.
const limitWarning = time.Minute

// ipv6Site is the number of bits of an IPv6 address that identify a site. A machine chooses the rest itself.
const ipv6Site = 64

// connectionLimit closes the connections of an address beyond a limit, before anything is read from them.
type connectionLimit struct {
	most    int
	proxies Proxies // not limited
	log     *slog.Logger

	mu       sync.Mutex
	open     map[netip.Prefix]int
	refused  int       // since the last warning
	warnedAt time.Time // zero if there was none yet
}

// newConnectionLimit limits the connections of each address to most, and to half of the files that the process may open. The other half is for other
// addresses, the store and callbacks. If most is 0, there is no limit.
func newConnectionLimit(most int, proxies Proxies, log *slog.Logger) *connectionLimit {
	if files := openFiles(); files > 0 && files/2 < most {
		most = max(1, files/2)
		log.Info("fewer connections per address than configured: no more than half of the files that this process may open", "connections", most, "files",
			files)
	}
	return &connectionLimit{most: most, proxies: proxies, log: log, open: map[netip.Prefix]int{}}
}

// changed is the [http.Server.ConnState] of a server. A refused connection counts until the server has noticed that it is closed.
func (l *connectionLimit) changed(conn net.Conn, state http.ConnState) {
	if l.most <= 0 || state == http.StateActive || state == http.StateIdle || l.proxies.trust(conn.RemoteAddr()) {
		return // requests change only between these two states
	}
	switch from := site(conn.RemoteAddr()); state {
	case http.StateNew:
		refused, ok := l.take(from)
		if !ok {
			_ = conn.Close()
		}
		if refused > 0 {
			l.log.Warn("connections refused: the address has as many as it may, which [http] max-connections-per-address changes",
				"address", from.Addr(), "most", l.most, "refused", refused)
		}
	case http.StateClosed, http.StateHijacked:
		l.release(from)
	}
}

// take counts a connection, and reports whether it is within the limit. If a warning is due, refused is the number of refused connections since the
// last one.
func (l *connectionLimit) take(from netip.Prefix) (refused int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from]++; l.open[from] <= l.most {
		return 0, true
	}
	l.refused++
	if now := time.Now(); now.Sub(l.warnedAt) >= limitWarning {
		refused, l.refused, l.warnedAt = l.refused, 0, now
	}
	return refused, false
}

func (l *connectionLimit) release(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// site returns the prefix by which connections and wrong tokens are counted.
func site(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() && !ip.IsLoopback() {
		bits = ipv6Site
	}
	prefix, _ := ip.Prefix(bits) // bits fits, because the address is valid
	return prefix
}
