package progress

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// shown reports whether a terminal shows a rune as it is. It obeys others, such as ESC and the controls from U+0080 to U+009F; a
// byte that is no UTF-8 may be one of them.
func shown(r rune, size int) bool {
	return unicode.IsPrint(r) && (r != utf8.RuneError || size > 1)
}

// Readable quotes text that a terminal would not show as it is, on one line: it may be of somebody who must not move the cursor
// or write what looks like another line.
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

// Escape writes what a terminal would not show as it is as \u and four hex digits, which leaves JSON the same value. Line ends
// and tabs stay.
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
