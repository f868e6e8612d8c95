// Package view renders the data of a page as HTML. The packages of the pages build values of the types in this package, and only the templates of
// this package write HTML. html/template escapes all texts of the sources.
package view

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/chart"
)

// Tone is the colour of a text. The text itself says the same.
type Tone string

// The tones.
const (
	Plain Tone = ""
	Good  Tone = "good"
	Warn  Tone = "warn"
	Bad   Tone = "bad"
	Muted Tone = "muted"
)

// Value is a piece of data on a page: a cell of a list, or a fact.
type Value struct {
	Text string
	// Title is the exact value if Text is rounded or truncated. Empty means that Text is exact.
	Title string
	// Href makes the text a link, relative to the console's root.
	Href string
	// Time is shown as a relative time in place of Text, after Prefix. If it is zero, Text is shown.
	Time   time.Time
	Prefix string
	Tone   Tone
	Chart  *chart.Chart
	Bar    *Bar
	// Code shows the text in a monospaced font.
	Code bool
	// Prose shows the times in the text, as At writes them, relative to now.
	Prose bool
}

// Bar is the share of done and failed objects, in percent.
type Bar struct {
	Done, Failed int
	Label        string
}

// NewBar computes the shares. The share of one object or more is not zero.
func NewBar(done, waiting, failed int) *Bar {
	all := max(1, done+waiting+failed)
	share := func(n int) int {
		if n == 0 {
			return 0
		}
		return max(1, 100*n/all)
	}
	return &Bar{share(done), share(failed), fmt.Sprintf("%d done, %d waiting, %d failed", done, waiting, failed)}
}

// From returns where the part for failed objects begins.
func (b *Bar) From() int { return 100 - b.Failed }

const (
	// maxText is the maximum number of characters of a name that are shown. The title has up to maxTitle.
	maxText  = 120
	maxTitle = 1000
)

// Text returns a value that is shown unchanged. A long text is truncated, and the title has more of it.
func Text(s string) Value {
	s = strings.ToValidUTF8(s, "\uFFFD")
	v := Value{Text: cut(s, maxText)}
	if v.Text != s {
		v.Title = cut(s, maxTitle)
	}
	return v
}

// cut truncates a text to n characters, and adds its length.
func cut(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:n]) + "… (" + group(uint64(len(runes))) + " characters)"
}

// Sentence returns a longer text, such as an error, for a cell of its own.
func Sentence(s string) Value { return Value{Text: cut(strings.ToValidUTF8(s, "\uFFFD"), maxTitle)} }

// Code returns a text in a monospaced font.
func Code(s string) Value {
	v := Text(s)
	v.Code = true
	return v
}

// Linked returns a text that links to another page.
func Linked(s, href string) Value {
	if strings.TrimSpace(s) == "" {
		return None("It is not stated")
	}
	v := Text(s)
	v.Href = href
	return v
}

// Word returns a text with a tone.
func Word(tone Tone, s string) Value {
	v := Text(s)
	v.Tone = tone
	return v
}

// None returns the value for missing data, with the reason.
func None(why string) Value { return Value{Text: "–", Title: why, Tone: Muted} }

// Number returns a count. It rounds a million or more.
func Number(n uint64) Value {
	switch {
	case n == 0:
		return Value{Text: "0", Tone: Muted}
	case n < 1_000_000:
		return Value{Text: group(n)}
	}
	return Value{Text: scaled(float64(n)/1e6, 1000, 2, "M", "G", "T"), Title: group(n)}
}

// Int is like Number, for an int.
func Int(n int) Value { return Number(uint64(max(0, n))) }

// Bounded returns a count with its noun. more means that the count stopped at a limit.
func Bounded(n int, more bool, noun string) string {
	if more {
		return group(uint64(n)) + "+ " + noun + "s"
	}
	return Count(uint64(n), noun)
}

// Rate returns a number of events per second.
func Rate(perSecond float64) Value {
	exact := strconv.FormatFloat(perSecond, 'f', 3, 64) + " per second"
	switch {
	case perSecond == 0:
		return Value{Text: "0/s", Tone: Muted}
	case perSecond < 10:
		return Value{Text: strconv.FormatFloat(perSecond, 'f', 1, 64) + "/s", Title: exact}
	}
	return Value{Text: Number(uint64(perSecond+0.5)).Text + "/s", Title: exact}
}

// Bytes returns a size.
func Bytes(n uint64) Value {
	exact := group(n) + " bytes"
	if n < 1024 {
		return Value{Text: exact}
	}
	return Value{Text: scaled(float64(n)/1024, 1024, 1, "KiB", "MiB", "GiB", "TiB"), Title: exact}
}

// Duration returns a length of time, rounded to two units.
func Duration(d time.Duration) Value {
	if d == 0 {
		return None("There is none")
	}
	return Value{Text: Span(d), Title: d.String()}
}

// Ago returns a time that is shown relative to now. For the zero time, it returns None with why.
func Ago(t time.Time, why string) Value {
	if t.IsZero() {
		return None(why)
	}
	return Value{Time: t.UTC()}
}

// Prose returns a sentence with times from At.
func Prose(s string) Value {
	v := Sentence(s)
	v.Prose = true
	return v
}

const isoTime = "2006-01-02T15:04:05.000Z"

// At returns a time for a sentence. A problem, a line, an outcome and a Prose value show it relative to now.
func At(t time.Time) string { return t.UTC().Format(isoTime) }

var atTime = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\b`)

// prose splits a sentence into texts and times. It does not change text that only looks like a time.
func prose(s string) (parts []Value) {
	begin := 0
	for _, found := range atTime.FindAllStringIndex(s, -1) {
		if at, err := time.Parse(isoTime, s[found[0]:found[1]]); err == nil && !at.IsZero() {
			parts = append(parts, Value{Text: s[begin:found[0]]}, Value{Time: at})
			begin = found[1]
		}
	}
	return append(parts, Value{Text: s[begin:]})
}

// scaled formats a number in the largest unit of which there is at least one. Each unit is base times the one before.
func scaled(n, base float64, digits int, units ...string) string {
	unit := 0
	for ; n >= base && unit < len(units)-1; unit++ {
		n /= base
	}
	return strconv.FormatFloat(n, 'f', digits, 64) + " " + units[unit]
}

// group formats a number with a comma between groups of three digits.
func group(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count returns a number with its noun, such as "1 message" or "1,204 messages".
func Count(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return group(n) + " " + noun + "s"
}

// Is returns the verb for a number of objects.
func Is(n uint64) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// CountIs returns a number with its noun and verb, such as "1 message is".
func CountIs(n uint64, noun string) string { return Count(n, noun) + " " + Is(n) }

// Span returns a duration in one or two units, such as "1 min 30 s".
func Span(d time.Duration) string {
	if d < 0 {
		return "-" + Span(-d)
	}
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return strconv.FormatFloat(math.Round(d.Seconds()*10)/10, 'f', -1, 64) + " s"
	case d < time.Hour:
		return two(int(d/time.Minute), "min", int(d%time.Minute/time.Second), "s")
	case d < 24*time.Hour:
		return two(int(d/time.Hour), "h", int(d%time.Hour/time.Minute), "min")
	}
	return two(int(d/(24*time.Hour)), "d", int(d%(24*time.Hour)/time.Hour), "h")
}

func two(a int, unit string, b int, lesser string) string {
	if b == 0 {
		return fmt.Sprintf("%d %s", a, unit)
	}
	return fmt.Sprintf("%d %s %d %s", a, unit, b, lesser)
}

// ago returns a time relative to now in one unit, as app.js does.
func ago(now, t time.Time) string {
	d := now.Sub(t)
	unit := func(d time.Duration) string {
		switch {
		case d < time.Minute:
			return fmt.Sprintf("%d s", d/time.Second)
		case d < time.Hour:
			return fmt.Sprintf("%d min", d/time.Minute)
		case d < 48*time.Hour:
			return fmt.Sprintf("%d h", d/time.Hour)
		}
		return fmt.Sprintf("%d d", d/(24*time.Hour))
	}
	switch {
	case d < -time.Second:
		return "in " + unit(-d)
	case d < time.Second:
		return "now"
	}
	return unit(d) + " ago"
}
