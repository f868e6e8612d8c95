package progress

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// shown reports whether a terminal displays a rune. It obeys other runes, such as ESC and the controls from U+0080 to U+009F. A byte that is not
// UTF-8 may be one of these.
func shown(r rune, size int) bool {
	return unicode.IsPrint(r) && (r != utf8.RuneError || size > 1)
}

// Readable returns text on one line. It quotes text that a terminal would not display as it is, because the author of the text must not be able to
// move the cursor or to fake another line.
func Readable(text string) string {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r != '\t' && !shown(r, size) {
			return strconv.Quote(text)
		}
		i += size
	}
	return text
}

// Escape replaces runes that a terminal would not display by \u and four hex digits, which does not change the value of JSON. It keeps newlines and
// tabs.
func Escape(text string) string {
	var b strings.Builder
	done := 0
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r != '\n' && r != '\t' && !shown(r, size) {
			b.WriteString(text[done:i])
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
			done = i + size
		}
		i += size
	}
	if done == 0 {
		return text
	}
	return b.String() + text[done:]
}
