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

// pageSize is the number of rows that a list shows at once.
const pageSize = 50

// slice returns the rows of a page, which starts at the query's parameter "from". It also returns the parameters of the previous and next pages.
func slice[T any](q url.Values, rows []T) (shown []T, previous, next url.Values) {
	from, _ := strconv.Atoi(q.Get("from")) // an invalid number means the first row
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

// column is a column of a table: its heading, the cell of a row, and the order of rows by it.
type column[T any] struct {
	view.Column
	cell  func(T) view.Value
	order func(a, b T) int // nil if rows cannot be ordered by it
}

// text returns a column of texts.
func text[T any](title string, cell func(T) view.Value) column[T] {
	return column[T]{Column: view.Column{Title: title}, cell: cell}
}

// number returns a column of numbers.
func number[T any](title string, cell func(T) view.Value) column[T] {
	return column[T]{Column: view.Column{Title: title, Number: true}, cell: cell}
}

// whenKnown returns a value, or None if it is not known now. A chart stays, because it also has earlier values.
func whenKnown(is bool, v view.Value) view.Value {
	if is || v.Chart != nil {
		return v
	}
	return view.None("not known now")
}

// ifKnown makes columns show the values of only those rows of which they are known now.
func ifKnown[T any](is func(T) bool, columns ...column[T]) []column[T] {
	for i, c := range columns {
		columns[i].cell = func(one T) view.Value { return whenKnown(is(one), c.cell(one)) }
	}
	return columns
}

// help sets an explanation of the heading.
func (c column[T]) help(text string) column[T] {
	c.Help = text
	return c
}

// wide makes the column use the whole width of a narrow screen.
func (c column[T]) wide() column[T] {
	c.Wide = true
	return c
}

// by sets how to order rows by the column, which the value of the query's parameter "sort" selects.
func (c column[T]) by(value string, order func(a, b T) int) column[T] {
	c.Sort, c.order = value, order
	return c
}

// count returns a column of numbers by which rows can be ordered.
func count[T any, N int | uint64](title, value string, n func(T) N) column[T] {
	return number(title, func(one T) view.Value { return view.Number(uint64(max(0, n(one)))) }).
		by(value, func(a, b T) int { return cmp.Compare(n(a), n(b)) })
}

// facts returns the values of an object's columns for its page, except small charts, which are for lists only.
func facts[T any](one T, columns []column[T]) (all []view.Fact) {
	for _, c := range columns {
		if v := c.cell(one); v.Chart == nil {
			all = append(all, view.Fact{Name: c.Title, Value: v})
		}
	}
	return all
}

// show adds columns and rows to a list.
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

// table adds the page of rows that the query selects to a list. It orders them as the query requires, or else by the column usual. If usual is empty,
// it keeps their order. all is the number of objects without the filter.
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

// ordered returns the fields of a filter that keeps the order of its list.
func ordered(q url.Values, fields ...view.Field) []view.Field {
	return append(fields, hidden(q, "sort"), hidden(q, "desc"))
}

// selected returns the rows that fit a query.
func selected[T any](q url.Values, all []T, fits func(url.Values, T) bool) (rows []T) {
	for _, one := range all {
		if fits(q, one) {
			rows = append(rows, one)
		}
	}
	return rows
}

// with returns a copy of a query with another value. An empty value removes the parameter.
func with(q url.Values, name, value string) url.Values {
	out := url.Values{}
	maps.Copy(out, q)
	out.Del(name)
	if value != "" && value != "0" {
		out.Set(name, value)
	}
	return out
}

// options returns the options of a field, from pairs of a value and its text.
func options(pairs ...string) (all []view.Option) {
	for i := 0; i+1 < len(pairs); i += 2 {
		all = append(all, view.Option{Value: pairs[i], Text: pairs[i+1]})
	}
	return all
}

// hidden returns a field that a filter keeps in the query of its page.
func hidden(q url.Values, name string) view.Field {
	return view.Field{Name: name, Value: q.Get(name), Hidden: true}
}

// entry returns a field for a text of the query.
func entry(q url.Values, name, label, placeholder string) view.Field {
	return view.Field{Name: name, Label: label, Value: q.Get(name), Placeholder: placeholder}
}

// searchField returns the entry to which the key "/" leads.
func searchField(q url.Values, name, label, placeholder string) view.Field {
	f := entry(q, name, label, placeholder)
	f.Type = "search"
	return f
}

// timeFields returns fields for a span of time, by its bounds or by a name.
func timeFields(q url.Values, since, until string) []view.Field {
	from, to := entry(q, "since", since+" (UTC)", ""), entry(q, "until", until+" (UTC)", "")
	from.Type, to.Type = "datetime-local", "datetime-local"
	spans := options("", "any time", "hour", "the last hour", "day", "the last 24 hours", "yesterday", "yesterday (UTC)")
	return []view.Field{from, to, choice(q, "span", "or in", spans)}
}

// times returns the bounds of the time in a query. Zero means that there is none. Bounds that the user has typed take precedence over a named span.
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

// parameters returns a query's values for names, as the filter of a system. It formats times as the systems expect.
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

// asked returns the query of a request for a page of a system's list. It continues at cursor; name is the system's parameter for it.
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

// firstPage adds the first rows to a list. If rows has more than pageSize rows, there is another page, whose parameters next returns for the last row
// of this page.
func firstPage[T any](list *view.List, rows []T, noun string, id func(T) string, next func(T) url.Values, columns []column[T]) (shown []T) {
	shown = rows[:min(len(rows), pageSize)]
	list.Found = view.Bounded(len(shown), len(rows) > pageSize, noun)
	if len(rows) > pageSize {
		list.Next = next(shown[pageSize-1])
	}
	show(list, columns, shown, id)
	return shown
}

// goesOn makes a system's list continue at a cursor, in a parameter of its page. An empty cursor means that the list has ended.
func goesOn(list *view.List, parameter, cursor, noun string) {
	if cursor == "" {
		return
	}
	list.Next = with(list.Query, parameter, cursor)
	if len(list.Rows) == 0 {
		list.Empty = "None of the " + noun + "s that were looked at matches. The next page looks at more."
	}
}

// choice returns a field with options. Unless the query has another value, the first one is selected.
func choice(q url.Values, name, label string, options []view.Option) view.Field {
	return view.Field{Name: name, Label: label, Value: cmp.Or(q.Get(name), options[0].Value), Options: options}
}
