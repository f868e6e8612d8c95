package page

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// other are labels and outcomes that use another word than "requeue" for delivering again what was given up or handled.
var other = regexp.MustCompile(`(?:Label: |label: |one\("\w+", |Text: |done\()"[^"]*(?i:\b(?:retry|redrive|replay|queue(?:d)? again)\b)`)

// One thing has one word on all pages.
func TestOneWordForRequeue(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, other.FindAllString(string(text), -1), file)
	}
}

func TestCodesAreInWords(t *testing.T) {
	for code, want := range map[string]string{
		"PERMANENT": "permanent error", "to_receiver": "to receiver", "NO_ANSWER": "no answer", "redrive": "requeue", "skip": "skip", "<b>": "<b>", "": "",
	} {
		require.Equal(t, want, plain(code).Text)
	}
	require.Equal(t, "PERMANENT", plain("PERMANENT").Title, "the code of the interface")
}
