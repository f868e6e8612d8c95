package wire

import (
	"fmt"
	"regexp"
	"strings"
)

// APIPrefix returns the prefix of the API subjects, with the dot at its end, for what a user gave: a prefix
// of their own, which goes first, a JetStream domain, or neither.
func APIPrefix(prefix, domain string) string {
	switch {
	case prefix != "":
		return strings.TrimSuffix(prefix, ".") + "."
	case domain != "":
		return "$JS." + domain + ".API."
	}
	return "$JS.API."
}

// ConsumerSubject is the subject of a request that concerns a consumer: of a pull with MSG.NEXT, for its configuration and state with INFO, and to
// remove the pin of the group in the body with UNPIN. prefix is one that APIPrefix returns.
func ConsumerSubject(prefix, request, stream, consumer string) string {
	return prefix + "CONSUMER." + request + "." + stream + "." + consumer
}

// groupName is the server's own check (ADR-42).
var groupName = regexp.MustCompile(`^[a-zA-Z0-9/_=-]{1,16}$`)

// ValidGroup returns an error unless name can name a priority group.
func ValidGroup(name string) error {
	if !groupName.MatchString(name) {
		return fmt.Errorf("%q cannot name a priority group; use 1 to 16 of letters, digits, '-', '_', '/' and '='", name)
	}
	return nil
}

// Matches reports whether a filter matches a subject.
func Matches(filter, subject string) bool {
	f, s := strings.Split(filter, "."), strings.Split(subject, ".")
	for i := range f {
		switch {
		case f[i] == ">":
			return i < len(s)
		case i >= len(s), f[i] != "*" && f[i] != s[i]:
			return false
		}
	}
	return len(f) == len(s)
}

const (
	// MaxSubject is the length of the longest subject that is published to if others may have chosen it. At a line of 4 KiB with a reply subject the
	// server ends the connection, for good.
	MaxSubject = 3 << 10
	// MaxName is the length of the longest name of a stream or consumer that the server allows.
	MaxName = 255
)

// Publishable reports whether subject can be published to: tokens between dots, without spaces and wildcards, and not too long.
func Publishable(subject string) bool {
	if len(subject) > MaxSubject {
		return false
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || strings.ContainsAny(token, " \t\r\n\f*>") {
			return false
		}
	}
	return true
}

// IsOld reports whether a server's version is before 2.11, which takes no_wait before expires and has no priority groups. A
// version that cannot be read is that of a development build, or of a connection that is away.
func IsOld(version string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return n == 2 && (major < 2 || major == 2 && minor < 11)
}
