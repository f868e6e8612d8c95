package domain

import "fmt"

// What is stored for ever, and held in memory on every node, is bounded in bytes.
const (
	// MaxText bounds an ID, a name, a token, a message ID, a content type and the fields of a form that have no limit of their own.
	MaxText = 1 << 10
	// MaxLongText bounds a callback URL, a list of event types and a metadata header.
	MaxLongText = 4 << 10
)

// CheckSize refuses a text that is too long. The error does not show it.
func CheckSize(text string, limit int) error {
	if len(text) > limit {
		return fmt.Errorf("it has %d bytes: give %d at most", len(text), limit)
	}
	return nil
}
