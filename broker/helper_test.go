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

// waitLong bounds a wait for a condition, which is checked every waitStep.
const (
	waitLong = 15 * time.Second
	waitStep = 5 * time.Millisecond
	// waitLongest bounds waits after a kill. waitShort is for conditions that hold for a moment only.
	waitLongest = 90 * time.Second
	waitShort   = 100 * time.Microsecond
)

// waitUntil waits for a condition that may hold for a moment only. Its bound covers the server's wait for requests in flight.
func waitUntil(t testing.TB, met func() bool, otherwise string) {
	t.Helper()
	require.Eventually(t, met, waitLongest, waitShort, otherwise)
}
