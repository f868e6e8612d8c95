package progress

import (
	"encoding/json"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

func TestReadable(t *testing.T) {
	for in, want := range map[string]string{
		"plain":        "plain",
		"tab\tis ok":   "tab\tis ok",
		"größe €":      "größe €",
		"\uFFFD":       "\uFFFD",
		"two\nlines":   `"two\nlines"`,
		"\x1b[2Jgone":  `"\x1b[2Jgone"`,
		"\u009b2Jgone": `"\u009b2Jgone"`,
		"\xff":         `"\xff"`,
		"\x9b":         `"\x9b"`,
		"\u202egnp":    `"\u202egnp"`,
		"":             "",
	} {
		require.Equal(t, want, Readable(in))
	}
}

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"two\nlines\tand €": "two\nlines\tand €",
		"a\x1b[2J":          `a\u001b[2J`,
		"\u009b2J":          `\u009b2J`,
		"\x9b2J":            `\ufffd2J`,
		"a\U000E0001b":      `a\udb40\udc01b`,
		"":                  "",
	} {
		require.Equal(t, want, Escape(in))
	}
}

// Escaped text has nothing that a terminal obeys, and as JSON it has the same value as before.
func FuzzEscape(f *testing.F) {
	for _, seed := range []string{"", "\x1b]0;x\x07", "\u009b", "\x80", "\U000E0001", "\u2028"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range Escape(text) {
			require.True(t, r == '\n' || r == '\t' || unicode.IsPrint(r), "%q", r)
		}
		data, err := json.Marshal(text)
		require.NoError(t, err)
		var before, after string
		require.NoError(t, json.Unmarshal(data, &before))
		require.NoError(t, json.Unmarshal([]byte(Escape(string(data))), &after))
		require.Equal(t, before, after)
	})
}
