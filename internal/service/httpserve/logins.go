package httpserve

import (
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

const (
	// loginWindow is the time in which wrong tokens are counted.
	loginWindow = time.Minute
	// loginSites bounds the addresses that are counted; all others count as one.
	loginSites = 1 << 16
)

// Logins limits the wrong admin tokens that come from an address. Beyond the limit no admin token is accepted from there for the rest of the
// minute, the right one neither: an answer to it would say that it is right. It may be used by several goroutines.
type Logins struct {
	most   int
	log    *slog.Logger
	failed func()

	mu    sync.Mutex
	begun time.Time
	wrong map[netip.Prefix]int
}

// NewLogins allows most wrong tokens of each address in a minute; 0: any number. It logs each that it allows, and calls failed for every one.
func NewLogins(most int, log *slog.Logger, failed func()) *Logins {
	return &Logins{most: most, log: log, failed: failed, wrong: map[netip.Prefix]int{}}
}

// Wait is how long no admin token is accepted from where r comes from. 0: one is.
func (l *Logins) Wait(r *http.Request) time.Duration {
	if l.most == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, left := l.count(r)
	return left
}

// Failed counts a request with a wrong token. The error refuses it where there are too many, and is nil where there may be more.
func (l *Logins) Failed(r *http.Request) error {
	l.failed()
	l.mu.Lock()
	from, left := l.count(r)
	l.wrong[from]++
	last := l.most > 0 && l.wrong[from] == l.most
	l.mu.Unlock()
	switch {
	case last:
		l.log.Warn("wrong tokens: no admin token is accepted from this address for a minute at most; [admin] max-failed-logins-per-minute changes that",
			"address", from.Addr(), "failed", l.most)
	case left > 0:
		seconds := strconv.Itoa(int(math.Ceil(left.Seconds())))
		return &Error{
			Status: http.StatusTooManyRequests, Code: "too_many_logins", Header: map[string]string{"Retry-After": seconds},
			Message: "too many wrong tokens from this address: no admin token is accepted for " + seconds + " s",
		}
	default:
		l.log.Warn("wrong token", "address", from.Addr(), "method", r.Method, "path", r.URL.EscapedPath())
	}
	return nil
}

// Refuse is the answer to a request that has shown a token that is wrong; empty: none.
func (l *Logins) Refuse(r *http.Request, token string, wrong error) error {
	if token != "" {
		if err := l.Failed(r); err != nil {
			return err
		}
	}
	return wrong
}

// count finds where r is counted, and how long that has to wait. The caller holds the lock.
func (l *Logins) count(r *http.Request) (from netip.Prefix, left time.Duration) {
	now := time.Now()
	if now.Sub(l.begun) >= loginWindow {
		l.begun = now
		clear(l.wrong)
	}
	from = site(remote(r))
	if _, known := l.wrong[from]; !known && len(l.wrong) >= loginSites {
		from = netip.Prefix{}
	}
	if l.most > 0 && l.wrong[from] >= l.most {
		left = l.begun.Add(loginWindow).Sub(now)
	}
	return from, left
}

// remote is the other end of the connection of r.
func remote(r *http.Request) net.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return nil
	}
	return net.TCPAddrFromAddrPort(at)
}
