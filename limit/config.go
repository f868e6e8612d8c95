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
	// Rate is the number of handlers of a key that begin in any Window. 0 means no limit of this kind.
	Rate int
	// Window is the length of the window, at least 100 ms. It is 0 if Rate is.
	Window time.Duration
	// Concurrent is the number of handlers of a key that run at a time. 0 means no limit of this kind.
	Concurrent int
	// TTL is the time after which a process that is silent no longer counts, at least 1 s. 0 means 10 s.
	TTL time.Duration
}

const (
	slicesPerWindow = 20 // a process takes so many at most, unless it gets only one begin with each
	mergesPerWindow = 50 // slices that are nearer to each other become one
	renewals        = 3  // within the TTL
	longestBase     = 100 * time.Millisecond
	longestKey      = 128
)

// validName reports whether a name can be part of keys.
var validName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`).MatchString

// complete sets the default and refuses invalid values.
func (c *Config) complete() error {
	c.TTL = cmp.Or(c.TTL, 10*time.Second)
	switch {
	case c.Rate == 0 && c.Concurrent == 0:
		return fmt.Errorf("limit: Rate and Concurrent are 0, so nothing is limited; set one of them")
	case c.Rate < 0 || c.Rate > maxNumber:
		return fmt.Errorf("limit: Rate %d is not in 0..%d", c.Rate, maxNumber)
	case c.Concurrent < 0 || c.Concurrent > maxNumber:
		return fmt.Errorf("limit: Concurrent %d is not in 0..%d", c.Concurrent, maxNumber)
	case c.Rate == 0 && c.Window != 0:
		return fmt.Errorf("limit: Window %v has no Rate; set Rate, or leave Window out", c.Window)
	case c.Rate > 0 && (c.Window < 100*time.Millisecond || c.Window > maxAge/4):
		return fmt.Errorf("limit: Window %v is not in 100ms..%v", c.Window, maxAge/4)
	case c.TTL < time.Second || c.TTL > maxAge/4:
		return fmt.Errorf("limit: TTL %v is not in 1s..%v; leave it out for 10s", c.TTL, maxAge/4)
	}
	return nil
}

func (c *Config) String() string {
	return fmt.Sprintf("Rate %d, Window %v, Concurrent %d and TTL %v", c.Rate, c.Window, c.Concurrent, c.TTL)
}

// kept is how long a begin counts. It is longer than the window, for the moment between Acquire and the handler.
func (c *Config) kept() time.Duration { return c.Window + c.Window/mergesPerWindow }

// base is the shortest time between two writes of a process that take several begins, and how long it keeps a slot that another one waits for.
func (c *Config) base() time.Duration {
	base := min(c.TTL/slicesPerWindow, longestBase)
	if c.Rate > 0 {
		base = min(base, c.Window/slicesPerWindow)
	}
	return base
}

// pace is the time between two writes of a process that is busy and does not wait: longer if there are many, since only one of them can write at a
// time.
func (c *Config) pace(holders int) time.Duration {
	return c.base() * time.Duration(min(8+holders, 24)) / 8
}

// share is the number of begins that one of so many processes takes: enough for twice the rate of all, divided by their number.
func (c *Config) share(holders int) int {
	if c.Rate == 0 {
		return 0
	}
	return max(1, int(2*int64(c.Rate)*int64(c.pace(holders))/int64(c.Window)/int64(max(1, holders))))
}

// bucketKey is the key of the bucket for a key, which is any string.
func bucketKey(name, key string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(key))
	if len(text) <= longestKey {
		return name + ".k" + text
	}
	sum := sha256.Sum256([]byte(key))
	return name + ".h" + hex.EncodeToString(sum[:])
}

func configKey(name string) string { return name + ".config" }
