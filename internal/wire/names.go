package wire

import (
	"fmt"
	"regexp"
	"strings"
)

// APIPrefix returns the prefix of the API subjects, with a dot at its end: prefix, or else that of the JetStream
// domain, or else the default.
func APIPrefix(prefix, domain string) string {
	switch {
	case prefix != "":
		return strings.TrimSuffix(prefix, ".") + "."
	case domain != "":
		return "$JS." + domain + ".API."
	}
	return "$JS.API."
}

// ConsumerSubject returns the subject of a request that concerns a consumer. request is MSG.NEXT for a pull, INFO for the configuration and the
// state, and UNPIN to remove the pin of the group in the body. APIPrefix returns prefix.
func ConsumerSubject(prefix, request, stream, consumer string) string {
	return prefix + "CONSUMER." + request + "." + stream + "." + consumer
}

// groupName is the server's check of a name (ADR-42).
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
	// MaxSubject is the maximum length of a subject to publish to, if others may have chosen it. If the protocol line, with a reply subject, exceeds
	// 4 KiB, the server closes the connection for good.
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

// IsOld reports whether a server's version is before 2.11. Such a server ignores expires if no_wait is set, and has no priority
// groups. A version that cannot be parsed is not old: it is that of a development build, or the connection is down.
func IsOld(version string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return n == 2 && (major < 2 || major == 2 && minor < 11)
}
