package client

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/wire"
)

// The library's limits. What is known to be out of them is refused before a server
// is started, a connection made, or anything created.
const (
	MaxHeld  = 3584
	MaxBatch = math.MaxInt32
	MinWait  = time.Millisecond
	maxWait  = 365 * 24 * time.Hour
)

// InRange refuses a flag's number that is not in least..most.
func InRange[N int | int64](flag string, n, least, most N) error {
	if n < least || n > most {
		return cli.Usage(fmt.Errorf("%s %d is not in %d..%d", flag, n, least, most))
	}
	return nil
}

// Lasting refuses a flag's duration that is shorter than least, or so long that it
// is a mistake in units.
func Lasting(flag string, d, least time.Duration) error {
	if d < least || d > maxWait {
		return cli.Usage(fmt.Errorf("%s %v is not in %v..%v", flag, d, least, maxWait))
	}
	return nil
}

// CheckName refuses what cannot be the name of a stream or a consumer.
func CheckName(of, name string) error {
	if name == "" || strings.ContainsAny(name, " \t\r\n\f.*>/\\") {
		return cli.Usage(fmt.Errorf("%q is not the name of a %s: it must not be empty nor contain spaces, dots, slashes, * or >", name, of))
	}
	return nil
}

// IsSubject reports whether a message can be published to subject or, where
// wildcards are fine, whether a stream can be over it.
func IsSubject(subject string, wildcards bool) bool {
	tokens := strings.Split(subject, ".")
	for i, token := range tokens {
		switch {
		case token == "", strings.ContainsAny(token, " \t\r\n\f"):
			return false
		case token == "*", token == ">":
			if !wildcards || token == ">" && i < len(tokens)-1 {
				return false
			}
		case !wildcards && strings.ContainsAny(token, "*>"):
			return false
		}
	}
	return true
}

// schemes are those of a server's URL.
var schemes = []string{"nats", "tls", "ws", "wss"}

// checkURLs refuses what nats.go would take for the name of a host.
func checkURLs(from, urls string) error {
	for u := range strings.SplitSeq(urls, ",") {
		scheme, _, ok := strings.Cut(strings.TrimSpace(u), "://")
		if ok && !slices.Contains(schemes, strings.ToLower(scheme)) {
			return cli.Usage(fmt.Errorf("%s: scheme %q is none of %s", from, scheme, strings.Join(schemes, ", ")))
		}
	}
	return nil
}

// CheckGroup refuses what cannot be the name of a priority group.
func CheckGroup(name string) error {
	if err := wire.ValidGroup(name); err != nil {
		return cli.Usage(fmt.Errorf("--group: %w", err))
	}
	return nil
}
