package tracing

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// checkTraceSecrets refuses those variables of the exporter that may hold a
// secret and that it could not read. It would print what it could not read,
// secret and all, and go on without it.
func checkTraceSecrets(getenv func(string) string) error {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		for i, entry := range strings.Split(getenv(name), ",") {
			if problem := headerProblem(entry); problem != "" {
				return cli.Usage(fmt.Errorf("%s: entry %d %s; write name=value, with commas between entries, and percent-encode what is special in a value", name, i+1, problem))
			}
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		if _, err := url.Parse(strings.TrimSpace(getenv(name))); err != nil {
			return cli.Usage(fmt.Errorf("%s is not a URL; write one such as http://127.0.0.1:4318", name))
		}
	}
	return nil
}

// headerProblem says what is wrong with one name=value, and nothing of what is in
// it: what looks like a name can be a part of the secret. No entry at all, as
// after a last comma, does no harm.
func headerProblem(entry string) string {
	if strings.TrimSpace(entry) == "" {
		return ""
	}
	name, value, ok := strings.Cut(entry, "=")
	if !ok {
		return "has no equals sign"
	}
	if name = strings.TrimSpace(name); name == "" || strings.ContainsFunc(name, notInToken) {
		return "has a name that no header can have"
	}
	if _, err := url.PathUnescape(value); err != nil {
		return "has a percent sign in its value that does not begin an encoded byte"
	}
	return ""
}

// notInToken tells the characters that a header's name cannot have (RFC 9110,
// section 5.6.2).
func notInToken(c rune) bool {
	letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
