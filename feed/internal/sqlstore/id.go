package sqlstore

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxID = 255

func checkID(name, id string) error {
	switch {
	case id == "":
		return Invalid(name, "is empty")
	case len(id) > maxID:
		return Invalid(name, "has %d bytes; give at most %d", len(id), maxID)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl):
		return Invalid(name, "%q has control characters or is not UTF-8", id)
	case strings.TrimSpace(id) != id:
		return Invalid(name, "%q begins or ends with a space", id)
	}
	return nil
}

// possible tells whether a row can have this ID. PostgreSQL takes no other text, not even to look for it.
func possible(id string) bool {
	return utf8.ValidString(id) && !strings.Contains(id, "\x00")
}
