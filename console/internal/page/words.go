package page

import (
	_ "embed" // words.txt
	"reflect"
	"strings"
	"text/template"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/mask"
)

//go:embed words.txt
var wordsText string

var words = template.Must(template.New("").Funcs(template.FuncMap{
	"at":      view.At,
	"span":    view.Span,
	"text":    func(s string) string { return view.Text(strings.Join(strings.Fields(s), " ")).Text },
	"line":    func(s string) string { return strings.Join(strings.Fields(s), " ") },
	"join":    func(all []string) string { return strings.Join(all, ", ") },
	"filters": filters,
	"count":   func(n any, noun string) string { return view.Count(natural(n), noun) },
	"countIs": func(n any, noun string) string { return view.CountIs(natural(n), noun) },
	"bounded": view.Bounded,
	"seconds": func(s float64) string { return view.Span(seconds(s)) },
	"rate":    func(perSecond float64) string { return view.Rate(perSecond).Text },
	"plain":   func(code string) string { return plain(code).Text },
	"address": mask.URL,
	"bytes":   func(n any) string { return view.Bytes(natural(n)).Text },
}).Parse(wordsText))

// natural converts a value of any integer type.
func natural(n any) uint64 {
	if v := reflect.ValueOf(n); v.CanInt() {
		return uint64(max(0, v.Int()))
	}
	return reflect.ValueOf(n).Uint()
}

// inWords returns the lines that a template of words.txt writes about a value.
func inWords(name string, of any) (lines []string) {
	var b strings.Builder
	if err := words.ExecuteTemplate(&b, name, of); err != nil {
		return []string{"The configuration cannot be shown in words: " + err.Error()}
	}
	for line := range strings.SplitSeq(b.String(), "\n") {
		if line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// inSentence returns the text that a template of words.txt writes.
func inSentence(name string, of any) string { return strings.Join(inWords(name, of), " ") }

// filters returns the subjects that a consumer delivers. None means all.
func filters(cfg jetstream.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return []string{cfg.FilterSubject}
	}
	return cfg.FilterSubjects
}
