package limit

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"
)

// Config is the configuration of a limit. All processes open it with the same one.
type Config struct {
	// Rate is the maximum number of handlers of a key that begin in any Window. 0 means no limit of this kind.
	Rate int
	// Window is the length of the window, at least 100 ms. It is 0 if Rate is.
	Window time.Duration
	// Concurrent is the maximum number of handlers of a key that run at a time. 0 means no limit of this kind.
	Concurrent int
	// TTL is the time without a write after which a process no longer counts, at least 1 s. 0 means 10 s.
	TTL time.Duration
}

const (
	slicesPerWindow = 20 // the most slices that a process takes in a window, unless each has only one begin
	mergesPerWindow = 50 // slices within this fraction of a window are merged
	renewals        = 3  // renewals within the TTL
	longestBase     = 100 * time.Millisecond
	longestKey      = 128
)

// validName reports whether a name can be part of keys.
var validName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`).MatchString

// complete sets the default and refuses invalid values.
func (c *Config) complete() error {
	c.TTL = cmp.Or(c.TTL, 10*time.Second)
	return cmp.Or(
		errorIf(c.Rate == 0 && c.Concurrent == 0, "Rate and Concurrent are 0, so nothing is limited; set one of them"),
		errorIf(c.Rate < 0 || c.Rate > maxNumber, "Rate %d is not in 0..%d", c.Rate, maxNumber),
		errorIf(c.Concurrent < 0 || c.Concurrent > maxNumber, "Concurrent %d is not in 0..%d", c.Concurrent, maxNumber),
		errorIf(c.Rate == 0 && c.Window != 0, "Window %v has no Rate; set Rate, or leave Window out", c.Window),
		errorIf(c.Rate > 0 && (c.Window < 100*time.Millisecond || c.Window > maxAge/4), "Window %v is not in 100ms..%v", c.Window, maxAge/4),
		errorIf(c.TTL < time.Second || c.TTL > maxAge/4, "TTL %v is not in 1s..%v; leave it out for 10s", c.TTL, maxAge/4),
	)
}

func errorIf(bad bool, format string, args ...any) error {
	if !bad {
		return nil
	}
	return fmt.Errorf("limit: "+format, args...)
}

func (c *Config) String() string {
	return fmt.Sprintf("Rate %d, Window %v, Concurrent %d and TTL %v", c.Rate, c.Window, c.Concurrent, c.TTL)
}

// kept returns how long a begin counts: longer than the window, because a handler starts shortly after Acquire has returned.
func (c *Config) kept() time.Duration { return c.Window + c.Window/mergesPerWindow }

// base returns the shortest time between two writes of a process that take several begins. A process keeps a slot for as long after its last write,
// even if another process waits for one.
func (c *Config) base() time.Duration {
	base := min(c.TTL/slicesPerWindow, longestBase)
	if c.Rate > 0 {
		base = min(base, c.Window/slicesPerWindow)
	}
	return base
}

// pace returns the time between two writes of a busy process that does not wait. It grows with the holders: only one can write at a time.
func (c *Config) pace(holders int) time.Duration {
	return c.base() * time.Duration(min(8+holders, 24)) / 8
}

// share returns the number of begins that a process takes with a write: its part of the begins that twice the Rate allows in a pace.
func (c *Config) share(holders int) int {
	if c.Rate == 0 {
		return 0
	}
	return max(1, int(2*int64(c.Rate)*int64(c.pace(holders))/int64(c.Window)/int64(max(1, holders))))
}

// bucketKey returns the key in the bucket for key, which can be any string.
func bucketKey(name, key string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(key))
	if len(text) <= longestKey {
		return name + ".k" + text
	}
	sum := sha256.Sum256([]byte(key))
	return name + ".h" + hex.EncodeToString(sum[:])
}

func configKey(name string) string { return name + ".config" }
