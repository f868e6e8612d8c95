// Package script is a language for tests that send events to a part of the client and compare the effects. The tests of
// internal/pull and internal/worker use it. Each package has its own events and effects, which its function play lists.
//
//	post a some 1 5s -> sub i1; p1 i1 1 now | +10ms; p1 404 -> sub i2; p2 i2 1 once 4.89s
//
// A script consists of lines, and a line of parts that bars separate. Events and effects are words, and semicolons separate them.
// After the arrow of a part come all effects of its events, in order, or after ~> in any order. A part without effects ends with
// an arrow, or has none. The effects of an event with a preceding ~ are ignored.
//
// Words are names, numbers, flags and key=value. The event +5s lets time pass. @2s before an effect is the time since its event
// began.
package script

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Play plays a script. It calls event for each event. effects returns the effects since its last call.
func Play(t testing.TB, script string, event func(Words), effects func() []string) {
	t.Helper()
	for part := range strings.FieldsFuncSeq(script, func(r rune) bool { return r == '\n' || r == '|' }) {
		events, after, _ := strings.Cut(part, "->")
		anyOrder := false
		if before, unordered, ok := strings.Cut(part, "~>"); ok {
			events, after, anyOrder = before, unordered, true
		}
		var got []string
		for text := range strings.SplitSeq(events, ";") {
			text, prepares := strings.CutPrefix(strings.TrimSpace(text), "~")
			ws := Words(strings.Fields(text))
			if len(ws) == 0 {
				continue
			}
			event(ws)
			if came := effects(); !prepares {
				got = append(got, came...)
			}
		}
		want := strings.Split(strings.Join(strings.Fields(after), " "), "; ")
		if anyOrder {
			slices.Sort(got)
			slices.Sort(want)
		}
		if got, want := strings.Join(got, "; "), strings.Join(want, "; "); got != want {
			t.Fatalf("%s\n got: %s\nwant: %s", events, got, want)
		}
	}
}

// Words are the words of an event.
type Words []string

// Has reports whether flag is one of the words.
func (ws Words) Has(flag string) bool { return slices.Contains(ws, flag) }

// Value returns the value of key=value, or other if there is none.
func (ws Words) Value(key, other string) string {
	for _, w := range ws {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v
		}
	}
	return other
}

// Number returns the value of key as a number.
func (ws Words) Number(key string, other int) int { return Number(ws.Value(key, strconv.Itoa(other))) }

// Durations returns the comma-separated durations of key, or of other.
func (ws Words) Durations(key, other string) (all []time.Duration) {
	for s := range strings.FieldsFuncSeq(ws.Value(key, other), func(r rune) bool { return r == ',' }) {
		all = append(all, Duration(s))
	}
	return all
}

// Number returns a word as a number. Like Duration, it panics if the script is invalid.
func Number(word string) int { return must(strconv.Atoi(word)) }

// Duration returns a word as a duration, with or without a plus.
func Duration(word string) time.Duration { return must(time.ParseDuration(word)) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
