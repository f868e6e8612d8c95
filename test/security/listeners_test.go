package security

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// opens is code that opens a port or starts a server.
var opens = regexp.MustCompile(`\bnet\.(Listen|ListenTCP|ListenUDP|ListenConfig)\b|\bhttp\.ListenAndServe|\bhttpserve\.Listen|\bserve\.HTTP\(|\bnatsembed\.Start\(|\bserver\.NewServer\(`)

// listeners are the files of the product that do, with the headings of docs/listeners.md that are about them.
var listeners = map[string][]string{
	"internal/service/httpserve/server.go":       {"Broker", "Relay"},
	"broker/node.go":                             {"Broker"},
	"broker/nats.go":                             {"NATS in broker and relay"},
	"relay/relay.go":                             {"Relay", "NATS in broker and relay"},
	"cmd/jetpull/internal/brokercmd/broker.go":   {"NATS in broker and relay"},
	"cmd/jetpull/internal/client/link.go":        {"NATS of --embedded"},
	"cmd/jetpull/internal/consolecmd/console.go": {"Console", "Exporter"},
	"cmd/jetpull/internal/feedcmd/feed.go":       {"Feed --metrics"},
	"cmd/jetpull/internal/relaycmd/relay.go":     {"Relay echo"},
	"cmd/jetpull/internal/serve/serve.go":        {"Console", "Exporter", "Relay echo", "NATS of --embedded"},
	"natsembed/server.go":                        {"NATS of natsembed"},
	"natsembed/embedtest/embedtest.go":           {"NATS of natsembed"},
}

// docs/listeners.md has each listener: a file that opens one is in the list above, and its heading on the page.
func TestEveryListenerIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/listeners.md")
	require.NoError(t, err)
	var found []string
	err = filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel("../..", path)
		if err != nil {
			return err
		}
		// Not part of the product: tests, measurements, examples and tools.
		apart := []string{
			"test", "bench", "examples", "tools", "out", "bin", "internal/natstest", "internal/pgtest",
			"cmd/jetpull/browser",
		}
		if entry.IsDir() && (slices.Contains(apart, file) || strings.HasPrefix(entry.Name(), ".") && file != ".") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if code, _, _ := strings.Cut(line, "//"); opens.MatchString(code) {
				found = append(found, filepath.ToSlash(file))
				break
			}
		}
		return nil
	})
	require.NoError(t, err)
	for _, file := range found {
		require.Contains(t, listeners, file, "it opens a port or starts a server: write on docs/listeners.md who may reach it, and add it here")
	}
	for file, headings := range listeners {
		require.Contains(t, found, file, "it opens nothing any more: take it off the list, and off docs/listeners.md")
		for _, heading := range headings {
			require.Contains(t, string(page), "\n## "+heading+"\n", file)
		}
	}
}
