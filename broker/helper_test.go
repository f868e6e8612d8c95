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

const (
	// waitLong bounds a wait for a condition, which is checked every waitStep.
	waitLong = 15 * time.Second
	waitStep = 5 * time.Millisecond
	// waitLongest bounds waits after a kill.
	waitLongest = 90 * time.Second
	// waitShort is the first step of waitUntil, and waitRarely the longest.
	waitShort  = 100 * time.Microsecond
	waitRarely = 25 * time.Millisecond
)

// waitUntil waits for a condition. It checks often at first, because the condition may hold for a moment only, and then less often,
// because a check may be a request, which costs more than what it waits for. Its bound covers the server's wait for requests in flight.
func waitUntil(t testing.TB, met func() bool, otherwise string) {
	t.Helper()
	for begin := time.Now(); !met(); {
		waited := time.Since(begin)
		require.Less(t, waited, waitLongest, otherwise)
		<-time.After(min(max(waited/10, waitShort), waitRarely))
	}
}
