package signature

import (
	"crypto/sha256"
	"sync"
	"time"
)

// Nonces remembers the nonces of requests for as long as their signatures are valid. It may be used by several goroutines.
type Nonces struct {
	window time.Duration // between the first and the last moment at which a signature is valid
	most   int

	mu          sync.Mutex
	begun       time.Time // when now was begun
	now, before map[[16]byte]struct{}
}

// NewNonces returns a memory of up to most nonces, for signatures that are valid for window.
func NewNonces(window time.Duration, most int) *Nonces { return &Nonces{window: window, most: most} }

// Use reports whether nonce is used for the first time, and whether it fits into the memory.
func (n *Nonces) Use(at time.Time, nonce string) (first, fits bool) {
	sum := sha256.Sum256([]byte(nonce))
	id := [16]byte(sum[:16])
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.Sub(n.begun) >= n.window {
		n.before = n.now
		if at.Sub(n.begun) >= 2*n.window {
			n.before = nil
		}
		n.begun, n.now = at, map[[16]byte]struct{}{}
	}
	_, used := n.now[id]
	if _, old := n.before[id]; used || old {
		return false, true
	}
	if len(n.now)+len(n.before) >= n.most {
		return true, false
	}
	n.now[id] = struct{}{}
	return true, true
}
