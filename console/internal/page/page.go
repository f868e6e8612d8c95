// Package page builds the pages from the data of the sources. Package view renders them. There is a file per family of pages. Each family defines the
// interface of the source that it needs.
package page

import (
	"context"
	_ "embed" // words.txt
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/mask"
)

// Request is a request for a page.
type Request struct {
	Query url.Values
	Now   time.Time
	// User is the user's name.
	User string
	// Payloads specifies whether the user may see payloads and headers of messages.
	Payloads bool
}

// values returns the i-th values of an object for a chart, over the hours in the query.
func (r Request) values(h *sample.History, key string, i int) chart.Series {
	n, span := 360, time.Hour
	if longer := slices.Index(view.Spans, r.Query.Get("hours")); longer > 0 {
		hours, _ := strconv.Atoi(view.Spans[longer])
		span = time.Duration(hours) * time.Hour
		n = int(span / (5 * time.Minute))
	}
	// The end changes only when the last point does, and so does the data that is sent to an open page.
	return chart.Series{Values: h.Values(r.Now, span, key, i, n), End: r.Now.Truncate(span / time.Duration(n)), Span: span}
}

// Func builds a page.
type Func func(ctx context.Context, r Request) (*view.Page, error)

// Family is a group of pages, by path. The first one has an entry in the navigation.
type Family struct {
	Title, First string
	Pages        map[string]Func
}

// Parameters lists the parameters in the queries of pages.
var Parameters = strings.Fields(`
	after all as broker channel consumer desc do download eventType from header hours id live message metadata name next origin
	outcome partition q reason receiver relay seq since sort source span stage state status stream subject system until`)

// link returns the path of a page with a query, from pairs of name and value.
func link(page string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return page
	}
	return page + "?" + q.Encode()
}

// reading returns the source of a part whose data a page reads itself. An error explains why there is no data.
func reading(name string, r Request, err error) view.Source {
	if err != nil {
		return view.Source{Name: name}.Away(err)
	}
	return view.Source{Name: name, Asked: r.Now}
}

// source describes how current a sample is.
func source[T any](name string, s sample.Sample[T]) view.Source {
	v := view.Source{Name: name, Asked: s.At, Stale: s.Stale()}
	if s.Err != nil {
		v = v.Away(s.Err)
	}
	st := sourceState(name, s).Of(time.Now())
	if st.Level == state.Red || st.Level == state.Amber {
		v.Problem, v.Tone = st.Sentence, st.Level.Tone()
	}
	return v
}

// sourceState returns the values that determine the state of a sample's source.
func sourceState[T any](name string, s sample.Sample[T]) state.Source {
	return state.Source{Name: name, Answered: s.At, Failing: s.Failing, Took: s.Took}
}

// NATS is the interface of a NATS account that the pages need.
type NATS interface {
	ConsumerSource
	MessageSource
	PartitionSource
	AccountSource
}

// Problem explains to the operator why a page or an action is refused.
type Problem struct {
	Status int
	// Text is the problem, and Fix what to do about it.
	Text, Fix string
	Err       error
}

// Error implements error.
func (p *Problem) Error() string {
	if p.Err != nil {
		return p.Text + ": " + p.Err.Error()
	}
	return p.Text
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

func notFound(fix, format string, args ...any) error {
	return &Problem{Status: http.StatusNotFound, Text: fmt.Sprintf(format, args...), Fix: fix}
}

func invalid(fix, format string, args ...any) error {
	return &Problem{Status: http.StatusBadRequest, Text: fmt.Sprintf(format, args...), Fix: fix}
}

// impossible returns the Problem of an action that is not possible in the current state of its object.
func impossible(fix, format string, args ...any) error {
	return &Problem{Status: http.StatusConflict, Text: fmt.Sprintf(format, args...), Fix: fix}
}

// unavailable returns the Problem of a source that does not answer, or refuses. The text has no full stop, because the error follows it.
func unavailable(err error, fix, format string, args ...any) error {
	return &Problem{Status: http.StatusBadGateway, Text: fmt.Sprintf(format, args...), Err: err, Fix: fix}
}

// unconfirmed returns the Problem of a change that NATS did not confirm. If NATS refused it, the Problem is that of [unavailable].
func unconfirmed(err error, fix, text string) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
		return unavailable(err, fix, "%s", text)
	}
	return &Problem{
		Status: http.StatusGatewayTimeout, Text: "NATS did not answer in time. Whether the action took effect is not known", Err: err,
		Fix: "Look at the state of its object before you try again.",
	}
}

// act returns do, with its errors made readable: refused converts an error that is not a [Problem].
func act(refused func(error) error, do view.Do) view.Do {
	return func(ctx context.Context, form url.Values) (view.Outcome, error) {
		outcome, err := do(ctx, form)
		if err == nil {
			return outcome, nil
		}
		if _, ok := errors.AsType[*Problem](err); !ok {
			err = refused(err)
		}
		return view.Outcome{}, err
	}
}

// done returns the outcome of an action on one object.
func done(text string) view.Outcome { return view.Outcome{Count: 1, Text: text} }

// systemRefused returns a function that explains why a system refused an action.
func systemRefused(system string) func(error) error {
	return func(err error) error {
		return unavailable(err, "Look at the state before you try again.",
			"The %s did not do this. Nothing was changed, unless the answer was lost", system)
	}
}

// notShown returns why a system does not show an object: it does not exist, or the system does not answer.
func notShown(system string, err error, fix, format string, args ...any) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, feed.ErrNotFound) {
		return &Problem{Status: http.StatusNotFound, Text: "The " + system + " has no " + fmt.Sprintf(format, args...), Err: err, Fix: fix}
	}
	return unavailable(err, "Try again. If it stays so, look at the "+system+".", "The %s %s", system, view.Source{}.Away(err).Does())
}

// rateField returns the field for the maximum rate of an operation.
func rateField(usual string) view.Field {
	return view.Field{Name: "rate", Label: "At most in a second (empty: " + usual + ")", Type: "number"}
}

func parseRate(text string) (float64, error) {
	if strings.TrimSpace(text) == "" {
		return 0, nil
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(rate > 0) || rate > 1e6 {
		return 0, invalid("Give a number above 0, such as 100, or leave it empty.", "%q is no rate.", text)
	}
	return rate, nil
}

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
