package page

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// used finds the parameters that pages read from their query, put into links, or ask for in filters.
var used = regexp.MustCompile(`(?:\b(?:q|Query|Query\(\))\.(?:Get|Has|Set)\(|with\(\w+, |(?:choice|entry|searchField|hidden)\(q, )"(\w+)"|link\("\w+", "(\w+)"(?:, [^"\n]*, "(\w+)")?`)

func TestParameters(t *testing.T) {
	found := map[string]bool{brokerName: true, relayName: true} // the cursors of the list of failures
	for _, pattern := range []string{"*.go", "../../*.go", "../view/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, match := range used.FindAllStringSubmatch(string(text), -1) {
				for _, name := range match[1:] {
					if name != "" {
						found[name] = true
						require.Contains(t, Parameters, name, "%s has the parameter %q, which is dropped from every request", file, name)
					}
				}
			}
		}
	}
	var unused []string
	for _, name := range Parameters {
		if !found[name] {
			unused = append(unused, name)
		}
	}
	slices.Sort(unused)
	require.Empty(t, unused, "of %v", Parameters)
}
