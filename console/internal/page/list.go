package page

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
)

// contains reports whether any of the texts contains q, ignoring case.
func contains(q string, texts ...string) bool {
	q = strings.ToLower(strings.TrimSpace(q))
	return q == "" || slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(strings.ToLower(t), q) })
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

// column is a column of a table: its heading, the cell of a row, and how rows are ordered by it.
type column[T any] struct {
	view.Column
	cell  func(T) view.Value
	order func(a, b T) int // nil: rows are not ordered by it
}

// text is a column of texts.
func text[T any](title string, cell func(T) view.Value) column[T] {
	return column[T]{Column: view.Column{Title: title}, cell: cell}
}

// number is a column of numbers.
func number[T any](title string, cell func(T) view.Value) column[T] {
	return column[T]{Column: view.Column{Title: title, Number: true}, cell: cell}
}

// help explains the heading.
func (c column[T]) help(text string) column[T] {
	c.Help = text
	return c
}

// wide gives the column the whole width of a narrow screen.
func (c column[T]) wide() column[T] {
	c.Wide = true
	return c
}

// by orders rows by the column, where the parameter "sort" of the query has this value.
func (c column[T]) by(value string, order func(a, b T) int) column[T] {
	c.Sort, c.order = value, order
	return c
}

// count is a column of numbers by which rows can be ordered.
func count[T any, N int | uint64](title, value string, n func(T) N) column[T] {
	return number(title, func(one T) view.Value { return view.Number(uint64(max(0, n(one)))) }).
		by(value, func(a, b T) int { return cmp.Compare(n(a), n(b)) })
}

// facts are what columns show of an object, for its page. Small charts are for lists alone.
func facts[T any](one T, columns []column[T]) (all []view.Fact) {
	for _, c := range columns {
		if v := c.cell(one); v.Chart == nil {
			all = append(all, view.Fact{Name: c.Title, Value: v})
		}
	}
	return all
}

// show completes a list with columns and rows.
func show[T any](list *view.List, columns []column[T], rows []T, id func(T) string) {
	for _, c := range columns {
		list.Columns = append(list.Columns, c.Column)
	}
	for _, one := range rows {
		cells := make([]view.Value, len(columns))
		for i, c := range columns {
			cells[i] = c.cell(one)
		}
		list.Add(id(one), cells...)
	}
}

// table completes a list with the page of rows that its query selects. They are ordered as the query says, or else by the column that usual names;
// empty: they stay as they are. All is how many objects there are without the filter.
func table[T any](list *view.List, q url.Values, rows []T, usual string, all int, noun string, id func(T) string, columns []column[T]) (shown []T) {
	list.Query = q
	orders := map[string]func(a, b T) int{}
	for _, c := range columns {
		orders[c.Sort] = c.order
	}
	list.Sorted, list.Descending = q.Get("sort"), q.Has("desc")
	if orders[list.Sorted] == nil {
		list.Sorted, list.Descending = usual, false
	}
	if order := orders[list.Sorted]; order != nil {
		slices.SortStableFunc(rows, order)
	}
	if list.Descending {
		slices.Reverse(rows)
	}
	shown, list.Previous, list.Next = slice(q, rows)
	list.Found = cmp.Or(list.Found, view.Bounded(len(rows), false, noun))
	if len(rows) == 0 && all > 0 {
		list.Empty = fmt.Sprintf("None of %s matches this filter.", view.Count(uint64(all), noun))
	}
	show(list, columns, shown, id)
	return shown
}

// keepOrder has a filter keep the order of its list.
func keepOrder(f *view.Filter, q url.Values) *view.Filter {
	f.Fields = append(f.Fields, hidden(q, "sort"), hidden(q, "desc"))
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
	maps.Copy(out, q)
	out.Del(name)
	if value != "" && value != "0" {
		out.Set(name, value)
	}
	return out
}

// options are the choices of a field, as pairs of a value and its text.
func options(pairs ...string) (all []view.Option) {
	for i := 0; i+1 < len(pairs); i += 2 {
		all = append(all, view.Option{Value: pairs[i], Text: pairs[i+1]})
	}
	return all
}

// hidden is a field that a filter keeps in the query of its page.
func hidden(q url.Values, name string) view.Field {
	return view.Field{Name: name, Value: q.Get(name), Hidden: true}
}

// entry is a field for a text of the query.
func entry(q url.Values, name, label, placeholder string) view.Field {
	return view.Field{Name: name, Label: label, Value: q.Get(name), Placeholder: placeholder}
}

// searchField is the entry that the key "/" leads to.
func searchField(q url.Values, name, label, placeholder string) view.Field {
	f := entry(q, name, label, placeholder)
	f.Type = "search"
	return f
}

// timeFields select a time by its bounds, or by a name.
func timeFields(q url.Values, since, until string) []view.Field {
	from, to := entry(q, "since", since+" (UTC)", ""), entry(q, "until", until+" (UTC)", "")
	from.Type, to.Type = "datetime-local", "datetime-local"
	spans := options("", "any time", "hour", "the last hour", "day", "the last 24 hours", "yesterday", "yesterday (UTC)")
	return []view.Field{from, to, choice(q, "span", "or in", spans)}
}

// times are the bounds of the time that a query names; zero: there is none. Bounds that the user has typed come before those of a span.
func times(q url.Values) (since, until time.Time, err error) {
	now := time.Now().UTC().Truncate(time.Minute)
	today := now.Truncate(24 * time.Hour)
	switch name := q.Get("span"); name {
	case "":
	case "hour":
		since = now.Add(-time.Hour)
	case "day":
		since = now.Add(-24 * time.Hour)
	case "yesterday":
		since, until = today.Add(-24*time.Hour), today
	default:
		return since, until, invalid("Choose one of the list.", "%q is no time.", name)
	}
	for name, to := range map[string]*time.Time{"since": &since, "until": &until} {
		if text := strings.TrimSpace(q.Get(name)); text != "" && err == nil {
			*to, err = parseTime(text)
		}
	}
	return since, until, err
}

func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, invalid("Give a time in UTC, such as 2026-01-31T15:04.", "%q is no time.", text)
}

// parameters are the values that a query has for some names, which a system takes as its filter. Times are those that the systems take.
func parameters(q url.Values, names ...string) (map[string]string, error) {
	filter := map[string]string{}
	for _, name := range names {
		if value := strings.TrimSpace(q.Get(name)); value != "" {
			filter[name] = value
		}
	}
	since, until, err := times(q)
	if err != nil {
		return nil, err
	}
	if !since.IsZero() && !until.IsZero() && !until.After(since) {
		return nil, invalid("Give an end that is later.", "%s, the end of the time, is not after %s, its begin.", view.At(until), view.At(since))
	}
	for name, at := range map[string]time.Time{"since": since, "until": until} {
		if !at.IsZero() {
			filter[name] = at.Format(time.RFC3339)
		}
	}
	return filter, nil
}

// asked is the query of a request for a page of a system's list. The system goes on at a cursor, which its interface has a name for.
func asked(filter map[string]string, name, cursor string) string {
	q := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for field, value := range filter {
		q.Set(field, value)
	}
	if cursor != "" {
		q.Set(name, cursor)
	}
	return q.Encode()
}

// firstPage completes a list with the first rows of those that were read. A row more than pageSize states that there are others, which the list shows
// with the parameters that next returns for the last row of this page.
func firstPage[T any](list *view.List, rows []T, noun string, id func(T) string, next func(T) url.Values, columns []column[T]) (shown []T) {
	shown = rows[:min(len(rows), pageSize)]
	list.Found = view.Bounded(len(shown), len(rows) > pageSize, noun)
	if len(rows) > pageSize {
		list.Next = next(shown[pageSize-1])
	}
	show(list, columns, shown, id)
	return shown
}

// goesOn has a list of a system go on at a cursor, by a parameter of its page; empty: it has ended.
func goesOn(list *view.List, parameter, cursor, noun string) {
	if cursor == "" {
		return
	}
	list.Next = with(list.Query, parameter, cursor)
	if len(list.Rows) == 0 {
		list.Empty = "None of the " + noun + "s that were looked at matches. The next page looks at more."
	}
}

// choice is a field with options. The first of them is chosen unless the query has another.
func choice(q url.Values, name, label string, options []view.Option) view.Field {
	return view.Field{Name: name, Label: label, Value: cmp.Or(q.Get(name), options[0].Value), Options: options}
}
