package feed

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// Attempt is one that failed.
type Attempt struct {
	// At is when it ended, by the clock of the watcher's machine.
	At time.Time `json:"at"`
	// Gate is where the item was, and Attempt the number of the attempt in its step.
	Gate    int    `json:"gate"`
	Attempt int    `json:"attempt"`
	Error   string `json:"error"`
}

const (
	maxErrors    = 50
	maxErrorText = 2048
	// maxAttemptText bounds the errors of the history, which an item has for as long as its row is there.
	maxAttemptText = 512
)

// History returns the attempts that failed, of all steps and also before a [Store.Retry], oldest first. Of more than 50
// the last 50 are kept, each error cut at 512 bytes.
func (it Item) History() []Attempt {
	if it.history == "" {
		return nil
	}
	var list []Attempt
	if json.Unmarshal([]byte(it.history), &list) != nil {
		return []Attempt{{Error: it.history}} // of another program
	}
	return list
}

// addAttempt is the column history with one more attempt.
func addAttempt(it Item, text string) string {
	list := append(it.History(), Attempt{time.Now().UTC(), it.Gate, it.Attempt, cleanText(text, maxAttemptText)})
	b, err := json.Marshal(list[max(0, len(list)-maxErrors):])
	if err != nil {
		return it.history // what was read from JSON is always JSON
	}
	return string(b)
}

// addError appends an error's text.
func addError(list []string, text string) []string {
	list = append(list[:len(list):len(list)], cleanText(text, maxErrorText))
	return list[max(0, len(list)-maxErrors):]
}

// cleanText cuts a text, and cleans it for columns that hold no zero byte.
func cleanText(text string, most int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
