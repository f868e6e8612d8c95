package requeue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// mostSubjects limits the subjects that a tally counts separately, and shownSubjects those that its text names.
	mostSubjects  = 1000
	shownSubjects = 8
	// longestSubject is the maximum length of a subject in the text, in bytes.
	longestSubject = 80
)

// Tally counts the messages of a requeue by subject, before the requeue begins. The zero value is empty.
type Tally struct {
	Subjects map[string]int
	Refused  int // Why is the reason of the first
	Why      error
	others   int
}

// Add counts a message that goes to a subject, or that is refused with err.
func (t *Tally) Add(subject string, err error) {
	switch {
	case err != nil:
		t.Refused++
		t.Why = cmp.Or(t.Why, err)
		return
	case t.Subjects == nil:
		t.Subjects = map[string]int{}
	}
	if _, ok := t.Subjects[subject]; !ok && len(t.Subjects) >= mostSubjects {
		t.others++
		return
	}
	t.Subjects[subject]++
}

// String names the subjects with the most messages, as in "orders.new (30), orders.paid (2); refused: 1 (…)".
func (t *Tally) String() string {
	subjects := slices.SortedFunc(maps.Keys(t.Subjects), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.Subjects[b], t.Subjects[a]), cmp.Compare(a, b))
	})
	others := t.others
	var parts []string
	for i, s := range subjects {
		if i >= shownSubjects {
			others += t.Subjects[s]
			continue
		}
		parts = append(parts, fmt.Sprintf("%s (%d)", readable(s), t.Subjects[s]))
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("other subjects (%d)", others))
	}
	text := cmp.Or(strings.Join(parts, ", "), "no subject")
	if t.Refused > 0 {
		text += fmt.Sprintf("; refused: %d (%v)", t.Refused, t.Why)
	}
	return text
}

// readable returns a subject without characters that a terminal or a reader could mistake.
func readable(subject string) string {
	if len(subject) > longestSubject {
		subject = subject[:longestSubject] + "…"
	}
	if !utf8.ValidString(subject) || strings.ContainsFunc(subject, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(subject)
	}
	return subject
}
