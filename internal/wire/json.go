package wire

import "unicode/utf8"

const (
	hexDigits   = "0123456789abcdef"
	replacement = `\ufffd`
)

// appendQuoted appends s as a JSON string. Bytes that are not UTF-8 become
// U+FFFD, as encoding/json has it: JSON cannot carry them.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0 // s[start:i] is clean and not yet copied
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[start:i]...)
				dst = append(dst, replacement...)
				start = i + size
			}
			i += size
			continue
		}
		if c < ' ' || c == '"' || c == '\\' {
			dst = append(dst, s[start:i]...)
			dst = appendEscaped(dst, c)
			start = i + 1
		}
		i++
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// appendEscaped appends one ASCII byte that may not stand in a JSON string as it is.
func appendEscaped(dst []byte, c byte) []byte {
	if c >= ' ' {
		return append(dst, '\\', c)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}
