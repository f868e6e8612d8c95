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
	// loginWindow is the period for which wrong tokens are counted.
	loginWindow = time.Minute
	// loginSites is the maximum number of addresses that are counted separately. All others count as one.
	loginSites = 1 << 16
	// guessWait is the delay of the answer to a wrong token from an address that has sent too many. Together with the limit of connections, it limits
	// how fast tokens can be guessed.
	guessWait = time.Second
	// mostWaiting is the maximum number of delayed answers, because each holds a goroutine and its request. Beyond it, the connection is closed
	// instead. One connection with HTTP/2, or from a trusted proxy, which has no limit, may send many requests at a time.
	mostWaiting = 1000
)

// Logins slows down clients that send wrong tokens. When an address has sent too many, answers to wrong tokens are delayed. A right token is never
// refused, because many clients may share the address of a proxy. Logins is safe for concurrent use.
type Logins struct {
	most    int
	log     *slog.Logger
	failed  func()
	waiting chan struct{} // has an element for each delayed answer

	mu    sync.Mutex
	begun time.Time
	wrong map[netip.Prefix]int
}

// NewLogins allows most wrong tokens per address and minute, or any number if most is 0. It logs each allowed one, and calls failed for every one.
func NewLogins(most int, log *slog.Logger, failed func()) *Logins {
	return &Logins{most: most, log: log, failed: failed, waiting: make(chan struct{}, mostWaiting), wrong: map[netip.Prefix]int{}}
}

// Refuse returns the error for a request with a wrong token, or without one. It counts a wrong token. If the token's address has sent too many,
// Refuse waits for a second, or until the client is gone, and returns an error with status 429 instead of wrong.
func (l *Logins) Refuse(r *http.Request, token string, wrong error) error {
	if token == "" {
		return wrong
	}
	left := l.count(r)
	if left == 0 {
		return wrong
	}
	refused := &Error{
		Status: http.StatusTooManyRequests, Code: "too_many_logins",
		Header:  map[string]string{"Retry-After": strconv.Itoa(int(math.Ceil(left.Seconds())))},
		Message: "wrong token, and there were too many wrong tokens from this address: give the right one",
	}
	if !l.wait(r) {
		refused.Header["Connection"] = "close"
	}
	return refused
}

// wait delays the answer to a wrong token. It returns false if too many answers are delayed already.
func (l *Logins) wait(r *http.Request) bool {
	select {
	case l.waiting <- struct{}{}:
		defer func() { <-l.waiting }()
	default:
		return false
	}
	select {
	case <-time.After(guessWait):
	case <-r.Context().Done():
	}
	return true
}

// count counts a wrong token. If its address has exceeded the limit, count returns how long the limit applies, and otherwise 0.
func (l *Logins) count(r *http.Request) (left time.Duration) {
	l.failed()
	l.mu.Lock()
	now := time.Now()
	if now.Sub(l.begun) >= loginWindow {
		l.begun = now
		clear(l.wrong)
	}
	from := site(remote(r))
	if _, known := l.wrong[from]; !known && len(l.wrong) >= loginSites {
		from = netip.Prefix{}
	}
	l.wrong[from]++
	n := l.wrong[from]
	left = l.begun.Add(loginWindow).Sub(now)
	l.mu.Unlock()
	switch {
	case l.most == 0 || n < l.most:
		l.log.Warn("wrong token", "address", from.Addr(), "method", r.Method, "path", r.URL.EscapedPath())
		return 0
	case n == l.most:
		l.log.Warn("wrong tokens: answers to further ones from this address wait, for a minute at most; [admin] max-failed-logins-per-minute changes that",
			"address", from.Addr(), "failed", l.most)
		return 0
	}
	return left
}

func remote(r *http.Request) net.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return nil
	}
	return net.TCPAddrFromAddrPort(at)
}
