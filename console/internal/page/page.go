// Package page builds the pages from the data of the sources; package view renders them. There is a file for each family of
// pages. A page defines the interface of the source that it needs.
package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
)

// Request is a request for a page.
type Request struct {
	Query url.Values
	Now   time.Time
	// User is the name of the user.
	User string
	// Payloads states that the user may see payloads and headers of messages.
	Payloads bool
}

// span is the time that charts show.
func (r Request) span() time.Duration {
	for _, hours := range view.Spans[1:] {
		if r.Query.Get("hours") == hours {
			n, _ := strconv.Atoi(hours)
			return time.Duration(n) * time.Hour
		}
	}
	return time.Hour
}

// values are the i-th values of an object for a chart of a page.
func (r Request) values(h *sample.History, key string, i int) chart.Series {
	n, span := 360, r.span()
	if span > time.Hour {
		n = int(span / (5 * time.Minute))
	}
	// The end changes with the last point alone, and so does what is sent to an open page.
	return chart.Series{Values: h.Values(r.Now, span, key, i, n), End: r.Now.Truncate(span / time.Duration(n)), Span: span}
}

// Func builds a page.
type Func func(ctx context.Context, r Request) (*view.Page, error)

// Parameters are those that the queries of pages have.
var Parameters = func() map[string]bool {
	all := map[string]bool{}
	for name := range strings.FieldsSeq(`
		after all as before broker channel consumer desc do download event from header hours id live message name next origin
		outcome partition producer q reason receiver relay seq since sort source stage state status stream subject system
		until`) {
		all[name] = true
	}
	return all
}()

// Within is the function with a limit on the time that the page waits for all of its sources together.
func (f Func) Within(most time.Duration) Func {
	return func(ctx context.Context, r Request) (*view.Page, error) {
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		return f(ctx, r)
	}
}

type userKey struct{}

// WithUser is a context of an action of a user.
func WithUser(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, userKey{}, name)
}

// user is the user of an action.
func user(ctx context.Context) string {
	name, _ := ctx.Value(userKey{}).(string)
	return name
}

// Problem is why a page or an action is refused, in words for the operator.
type Problem struct {
	Status int
	// Text is what was wrong, and Fix what to do.
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

// Unwrap is the cause.
func (p *Problem) Unwrap() error { return p.Err }

func notFound(fix, format string, args ...any) error {
	return &Problem{Status: http.StatusNotFound, Text: fmt.Sprintf(format, args...), Fix: fix}
}

func invalid(fix, format string, args ...any) error {
	return &Problem{Status: http.StatusBadRequest, Text: fmt.Sprintf(format, args...), Fix: fix}
}

// link is the path of a page with a query of names and values.
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

// source states how current a sample is.
func source[T any](name string, s sample.Sample[T]) view.Source {
	v := view.Source{Name: name, Asked: s.At, Stale: s.Stale()}
	if s.Err != nil {
		v = v.Away(s.Err)
	}
	st := state.Source{Name: name, Answered: s.At, Failing: s.Failing, Took: s.Took}.Of(time.Now())
	if st.Level == state.Red || st.Level == state.Amber {
		v.Problem, v.Tone = st.Sentence, st.Level.Tone()
	}
	return v
}

// contains reports whether any of the texts contains q, ignoring case.
func contains(q string, texts ...string) bool {
	q = strings.ToLower(strings.TrimSpace(q))
	return q == "" || slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(strings.ToLower(t), q) })
}

// order sorts rows by the columns that "sort" and "desc" of a query name. It returns the order that is used.
func order[T any](q url.Values, rows []T, by map[string]func(a, b T) int, usual string) (sorted string, descending bool) {
	sorted, descending = q.Get("sort"), q.Has("desc")
	compare := by[sorted]
	if compare == nil {
		sorted, descending, compare = usual, false, by[usual]
	}
	slices.SortStableFunc(rows, func(a, b T) int {
		if descending {
			return compare(b, a)
		}
		return compare(a, b)
	})
	return sorted, descending
}

// pageSize is how many rows a list shows at once.
const pageSize = 50

// slice is the part of rows that the parameter "from" of a query begins, with the parameters of the pages before and after it.
func slice[T any](q url.Values, rows []T) (shown []T, previous, next url.Values) {
	from, _ := strconv.Atoi(q.Get("from")) // a parameter that is no number begins at the first row
	from = max(0, min(from, len(rows)))
	if from > 0 {
		previous = with(q, "from", strconv.Itoa(max(0, from-pageSize)))
	}
	to := min(len(rows), from+pageSize)
	if to < len(rows) {
		next = with(q, "from", strconv.Itoa(to))
	}
	return rows[from:to], previous, next
}

// fill completes a list with the page of rows that its query selects, in the usual order unless the query has another one. All is how many objects
// there are without the filter.
func fill[T any](list *view.List, q url.Values, rows []T, by map[string]func(a, b T) int, usual string, all int, noun string,
	row func(T) view.Row,
) (shown []T) {
	list.Query = q
	list.Sorted, list.Descending = order(q, rows, by, usual)
	shown, list.Previous, list.Next = slice(q, rows)
	list.Found = cmp.Or(list.Found, view.Bounded(len(rows), false, noun))
	if len(rows) == 0 && all > 0 {
		list.Empty = fmt.Sprintf("None of the %s matches this filter.", view.Count(uint64(all), noun))
	}
	for _, one := range shown {
		list.Rows = append(list.Rows, row(one))
	}
	return shown
}

// keepOrder has a filter keep the order of its list.
func keepOrder(f *view.Filter, q url.Values) *view.Filter {
	for _, name := range []string{"sort", "desc"} {
		f.Fields = append(f.Fields, view.Field{Name: name, Value: q.Get(name), Hidden: true})
	}
	return f
}

// selected are the rows that fit a query.
func selected[T any](q url.Values, all []T, fits func(url.Values, T) bool) (rows []T) {
	for _, one := range all {
		if fits(q, one) {
			rows = append(rows, one)
		}
	}
	return rows
}

// with is a copy of a query with another value. An empty value removes the parameter.
func with(q url.Values, name, value string) url.Values {
	out := url.Values{}
	for k, v := range q {
		out[k] = v
	}
	out.Del(name)
	if value != "" && value != "0" {
		out.Set(name, value)
	}
	return out
}

// choice is a field with options. The first of them is chosen unless the query has another.
func choice(q url.Values, name, label string, options ...view.Option) view.Field {
	return view.Field{Name: name, Label: label, Value: cmp.Or(q.Get(name), options[0].Value), Options: options}
}

// NATS is what the pages need of a NATS account.
type NATS interface {
	ConsumerSource
	MessageSource
	PartitionSource
}

// maxShown is how many bytes of a payload a page shows.
const maxShown = 64 << 10

// noPayload is what a user sees who may not see payloads.
const noPayload = "This session may not see payloads and headers: its token allows to look at the rest only. The option --console-read-payloads " +
	"changes that."

// payloadBlock shows a payload as text, JSON or hex, as the parameter "as" of the query says, or as what it looks like. The parameter
// "download" of its page sends all of it.
func payloadBlock(data []byte, r Request, page string, pairs ...string) view.Block {
	if !r.Payloads {
		return view.Block{Title: "Payload", Note: noPayload}
	}
	kind := r.Query.Get("as")
	shown, note := data, ""
	if len(data) > maxShown {
		shown = data[:maxShown]
		note = fmt.Sprintf("These are the first %s of %s. The download has all of them.", view.Count(maxShown, "byte"),
			view.Count(uint64(len(data)), "byte"))
	}
	block := view.Block{Title: "Payload"}
	for _, as := range []string{"text", "json", "hex"} {
		block.Links = append(block.Links, view.Link{Text: as, Href: link(page, append([]string{"as", as}, pairs...)...)})
	}
	block.Links = append(block.Links, view.Link{Text: "download", Href: link(page, append([]string{"download", "1"}, pairs...)...)})
	isJSON := len(data) > 0 && len(data) <= maxShown && json.Valid(data)
	if kind == "" {
		switch {
		case isJSON:
			kind = "json"
		case utf8.Valid(shown) || len(shown) < len(data) && utf8.Valid(shown[:len(shown)-utf8.UTFMax]):
			kind = "text"
		default:
			kind = "hex"
		}
	}
	switch {
	case len(data) == 0:
		note = "The payload is empty."
	case kind == "hex":
		const hexShown = 8 << 10
		if len(shown) > hexShown {
			shown = shown[:hexShown]
			note = fmt.Sprintf("These are the first %s of %s. The download has all of them.", view.Count(hexShown, "byte"),
				view.Count(uint64(len(data)), "byte"))
		}
		block.Text = hex.Dump(shown)
	case kind == "json" && isJSON:
		if block.Fold = view.Fold(data); block.Fold == nil {
			var indented bytes.Buffer
			_ = json.Indent(&indented, data, "", "  ") // it is valid
			block.Text = indented.String()
		}
	default:
		if kind == "json" {
			note = strings.TrimSpace("It is not JSON, or too large to be indented, so it is shown as text. " + note)
		}
		block.Text, _ = printable(shown, len(shown))
	}
	block.Title += " as " + kind
	block.Note = note
	return block
}

// download sends a payload in place of its page.
func download(r Request, name string, data []byte) (*view.Page, error) {
	if !r.Payloads {
		return nil, &Problem{Status: http.StatusForbidden, Text: noPayload, Fix: "Sign in with the token of an administrator."}
	}
	return &view.Page{Download: &view.Download{Name: name + ".bin", Data: data}}, nil
}

// printable is the begin of data as text. Bytes that are no text, and characters that could change how the rest of the page is read, are
// replaced.
func printable(data []byte, most int) (text string, cut bool) {
	if len(data) > most {
		data, cut = data[:most], true
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r != '\n' && r != '\t' && unicode.IsControl(r) {
			return '\uFFFD'
		}
		return r
	}, string(data)), cut
}
