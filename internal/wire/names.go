package wire

import (
	"fmt"
	"regexp"
	"strings"
)

// APIPrefix returns the prefix of the API subjects, including the trailing dot, for the user's own prefix, which takes precedence, a JetStream
// domain, or neither.
func APIPrefix(prefix, domain string) string {
	switch {
	case prefix != "":
		return strings.TrimSuffix(prefix, ".") + "."
	case domain != "":
		return "$JS." + domain + ".API."
	}
	return "$JS.API."
}

// ConsumerSubject returns the subject of a request about a consumer: MSG.NEXT for a pull, INFO for its configuration and state, and UNPIN to remove
// the pin of the group in the body. prefix is one that APIPrefix returns.
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
	// MaxSubject is the maximum length of a subject to publish to that others may have chosen. If a line with a reply subject reaches 4 KiB, the
	// server closes the connection for good.
	MaxSubject = 3 << 10
	// MaxName is the maximum length of the name of a stream or consumer.
	MaxName = 255
)

// Publishable reports whether a message can be published to subject: it has tokens between dots, no spaces or wildcards, and is not too long.
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

// IsOld reports whether a server's version is before 2.11, which applies no_wait before expires and has no priority groups. An unreadable version
// belongs to a development build, or to a connection that is down.
func IsOld(version string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return n == 2 && (major < 2 || major == 2 && minor < 11)
}
