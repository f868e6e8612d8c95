package broker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func readOnlyFile(t testing.TB, dir string) []byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	b, err := os.ReadFile(filepath.Join(dir, entries[0].Name()))
	require.NoError(t, err)
	return b
}

func containsLine(text, line string) bool {
	for l := range strings.Lines(text) {
		if strings.TrimSpace(l) == line {
			return true
		}
	}
	return false
}

// waitLong bounds a wait for a condition, which is looked at every waitStep.
const (
	waitLong = 15 * time.Second
	waitStep = 5 * time.Millisecond
	// waitLongest and waitShort are for what comes after a kill, or lasts for a
	// moment only.
	waitLongest = 90 * time.Second
	waitShort   = 100 * time.Microsecond
)

// waitUntil waits for a condition that may be met for a moment only. It is
// bounded by what the server may make it wait for what was in flight.
func waitUntil(t testing.TB, met func() bool, otherwise string) {
	t.Helper()
	require.Eventually(t, met, waitLongest, waitShort, otherwise)
}
