// Package page builds the pages from the data of the sources. Package view renders them. There is a file per family of pages. Each family defines the
// interface of the source that it needs.
package page

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
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
