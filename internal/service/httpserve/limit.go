package httpserve

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// limitWarning is the minimum interval between two log lines about refused connections.
const limitWarning = time.Minute

// ipv6Site is the number of bits of an IPv6 address that identify a site. A machine chooses the rest itself.
const ipv6Site = 64

// limitedListener refuses the connections of an address beyond a limit. It closes them at once, so that they use neither files nor memory.
type limitedListener struct {
	net.Listener
	most    int
	proxies Proxies // not limited
	log     *slog.Logger

	mu       sync.Mutex
	open     map[netip.Prefix]int
	refused  int       // since the last warning
	warnedAt time.Time // zero if there was none yet
}

// limitConnections limits the connections of each address to most, and to half of the files that the process may open. The other half is for other
// addresses, the store and callbacks. If most is 0, it sets no limit.
func limitConnections(l net.Listener, most int, proxies Proxies, log *slog.Logger) net.Listener {
	if most <= 0 {
		return l
	}
	if files := openFiles(); files > 0 && files/2 < most {
		most = max(1, files/2)
		log.Info("fewer connections per address than configured: no more than half of the files that this process may open", "connections", most, "files",
			files)
	}
	return &limitedListener{Listener: l, most: most, proxies: proxies, log: log, open: map[netip.Prefix]int{}}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.proxies.trust(conn.RemoteAddr()) {
			return conn, nil
		}
		from := site(conn.RemoteAddr())
		refused, ok := l.take(from)
		if ok {
			return &countedConn{Conn: conn, release: sync.OnceFunc(func() { l.release(from) })}, nil
		}
		_ = conn.Close()
		if refused > 0 {
			l.log.Warn("connections refused: the address has as many as it may, which [http] max-connections-per-address changes",
				"address", from.Addr(), "most", l.most, "refused", refused)
		}
	}
}

// take counts or refuses a connection. If a warning is due, refused is the number of refused connections since the last one.
func (l *limitedListener) take(from netip.Prefix) (refused int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from] < l.most {
		l.open[from]++
		return 0, true
	}
	l.refused++
	if now := time.Now(); now.Sub(l.warnedAt) >= limitWarning {
		refused, l.refused, l.warnedAt = l.refused, 0, now
	}
	return refused, false
}

func (l *limitedListener) release(from netip.Prefix) {
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

// countedConn ends its count when it is closed.
type countedConn struct {
	net.Conn
	release func()
}

func (c *countedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite lets package net/http finish a response before it closes the connection. Otherwise a client that is still sending would lose it.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
