// Package script is a language for tests that send events to a part of the client and compare the effects. The tests of
// internal/pull and internal/worker are written in it; each has its own events and effects, listed at its function play.
//
//	post a some 1 5s -> sub i1; p1 i1 1 now | +10ms; p1 404 -> sub i2; p2 i2 1 once 4.89s
//
// A script has lines, and a line has parts between bars. Events and effects are words between semicolons. Behind the arrow of
// a part stand all effects of its events, in their order, or behind ~> in any order. A part without effects ends with a bare
// arrow, or has none. The effects of an event with a ~ before it do not count.
//
// Words are names, numbers, flags and key=value. The event +5s lets time pass, and @2s before an effect is how long after the
// beginning of its event it came.
package script

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Play plays a script. event brings one event, and effects takes the effects that have come since the last call.
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

// Words are those of an event.
type Words []string

// Has reports whether flag is one of the words.
func (ws Words) Has(flag string) bool { return slices.Contains(ws, flag) }

// Value is that of key=value, or other where there is none.
func (ws Words) Value(key, other string) string {
	for _, w := range ws {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v
		}
	}
	return other
}

// Number is the value of key as a number.
func (ws Words) Number(key string, other int) int { return Number(ws.Value(key, strconv.Itoa(other))) }

// Durations are the value of key with commas, or other.
func (ws Words) Durations(key, other string) (all []time.Duration) {
	for s := range strings.FieldsFuncSeq(ws.Value(key, other), func(r rune) bool { return r == ',' }) {
		all = append(all, Duration(s))
	}
	return all
}

// Number is a word as a number. A script that is wrong panics, here and in Duration.
func Number(word string) int { return must(strconv.Atoi(word)) }

// Duration is a word as a duration, with a plus or without.
func Duration(word string) time.Duration { return must(time.ParseDuration(word)) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
