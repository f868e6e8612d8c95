package servertest

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// PermissionsOf returns the configuration of a user in a section of docs/permissions.md. root is the path of the repository.
func PermissionsOf(tb testing.TB, root, heading string) string {
	tb.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs", "permissions.md"))
	require.NoError(tb, err)
	_, text, ok := strings.Cut(string(page), "\n## "+heading+"\n")
	require.True(tb, ok, heading)
	_, text, ok = strings.Cut(text, "```conf\n")
	require.True(tb, ok, heading)
	text, _, _ = strings.Cut(text, "```")
	return text
}

// permission matches a line with a subject in a configuration of permissions.
var permission = regexp.MustCompile(`(?m)^  "([^"]+)".*$`)

// WithoutEach yields the subject of each line of permissions, and the permissions without that line.
func WithoutEach(permissions string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, found := range permission.FindAllStringSubmatch(permissions, -1) {
			if !yield(found[1], strings.Replace(permissions, found[0], `  "none"`, 1)) {
				return
			}
		}
	}
}

// Literal returns the part of a subject before its first wildcard.
func Literal(subject string) string {
	before, _, _ := strings.Cut(strings.TrimSuffix(subject, ">"), "*")
	return before
}

// PartConfig returns the configuration of an account with JetStream and two users: all, and part, which has permissions. Both have the password pw.
func PartConfig(permissions string) string {
	const config = "accounts {A {jetstream: enabled, users: [{user: all, password: pw}, {user: part, password: pw, permissions: {%s}}]}}"
	return fmt.Sprintf(config, permissions)
}

// PartURL returns the URL of a server for the user part of [PartConfig].
func (s *Server) PartURL() string { return strings.Replace(s.URL(), "nats://", "nats://part:pw@", 1) }
