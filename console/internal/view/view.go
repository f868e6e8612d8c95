package view

import (
	"bytes"
	"embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"io"
	"maps"
	"net/url"
	"strings"
	"time"
)

//go:embed templates/*.html
var templates embed.FS

// Static are the style sheet and the scripts.
//
//go:embed style.css app.js icon*.svg thirdparty/*.js
var Static embed.FS

// Layout is what a page has around its content.
type Layout struct {
	Page *Page
	// Nav are the pages that there are, and Path the one that is shown, with its query.
	Nav  []Link
	Path string
	// Place is what the pages are about.
	Place Place
	// Contexts are the consoles of several accounts; empty: there is this one alone.
	Contexts []Choice
	// ReadOnly pages have no actions.
	ReadOnly bool
	// Login reports whether there is a session that can be ended, and Who is its user.
	Login bool
	Who   string
	// Did is the action whose outcome is shown; nil: there is none.
	Did *Entry
	// Failure is shown in place of a page; nil: there is a page.
	Failure *Failure
	// Confirm is the action that is confirmed on this page; nil: none is.
	Confirm *Action
	Preview string
	// Streaming is set where only the live part is written, for a page that app.js keeps current: times are absolute, so that what is
	// written changes only with the data.
	Streaming bool
	Now       time.Time
	// Version is part of the addresses of the style sheet and the scripts.
	Version string
}

// Place is what the pages are about. The header shows it.
type Place struct {
	// Environment is its name by configuration; empty: it has none.
	Environment string
	// Server is the name of the server, URL its address, and Account the account of the connection; empty: they are not known.
	Server, URL, Account string
}

// colors is the number of colours of environments in style.css. With 7, the usual names have different ones.
const colors = 7

// Color is the number of the environment's colour, which depends on its name alone.
func (p Place) Color() int {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(p.Environment)) // a hash takes all
	return int(sum.Sum32() % colors)
}

// Title is all of it in a sentence.
func (p Place) Title() string {
	var parts []string
	for _, one := range []struct{ label, value string }{
		{"environment ", p.Environment}, {"server ", p.Server}, {"at ", p.URL}, {"account ", p.Account},
	} {
		if one.value != "" {
			parts = append(parts, one.label+one.value)
		}
	}
	return strings.Join(parts, ", ")
}

// Failure is why there is no page.
type Failure struct {
	Title, Text, Fix string
	Back             string
}

var parsed = template.Must(template.New("").Funcs(template.FuncMap{
	"ago":    ago,
	"iso":    At,
	"exact":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") },
	"clock":  func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"minute": func(t time.Time) string { return t.UTC().Format("15:04") },
	"ctx":    func(l *Layout, v any) scope { return scope{l, v} },
	"value":  func(l *Layout, v Value) scope { return scope{l, v} },
	"prose":  prose,
	"when":   func(t time.Time) Value { return Value{Time: t} },
}).ParseFS(templates, "templates/*.html"))

// scope is a value of a page with the layout that it is shown in.
type scope struct {
	L *Layout
	V any
}

// Render writes a whole page.
func Render(w io.Writer, l *Layout) error { return render(w, "layout", l) }

// RenderLive writes the part of a page that changes with its data.
func RenderLive(w io.Writer, l *Layout) error { return render(w, "live", l) }

// render writes nothing where the template fails.
func render(w io.Writer, name string, l *Layout) error {
	var b bytes.Buffer
	if err := parsed.ExecuteTemplate(&b, name, l); err != nil {
		return fmt.Errorf("template %s: %w", name, err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Here is the address of the page, with its filter and without what belongs to one action.
func (l *Layout) Here() string { return address(l.Path, "do", "live", "download") }

// Spans are the spans of charts that can be chosen, in hours.
var Spans = []string{"1", "6", "24"}

// Choice is a link among several, of which one leads to what is shown.
type Choice struct {
	Link
	Current bool
}

// Spans are the links to the spans of charts.
func (l *Layout) Spans() (all []Choice) {
	_, query := split(l.Here())
	for i, hours := range Spans {
		current := query.Get("hours") == hours || i == 0 && !query.Has("hours")
		all = append(all, Choice{Link{hours + " h", l.with("hours", hours)}, current})
	}
	return all
}

// Doing is the address of the page that confirms an action.
func (l *Layout) Doing(name string) string { return l.with("do", name) }

// Live is the address of the page's stream of events.
func (l *Layout) Live() string { return l.with("live", "1") }

// with is the address of the page with another parameter.
func (l *Layout) with(name, value string) string {
	path, query := split(l.Here())
	query.Set(name, value)
	return path + "?" + query.Encode()
}

func split(address string) (path string, query url.Values) {
	u, err := url.Parse(address)
	if err != nil {
		return "", url.Values{}
	}
	return u.Path, u.Query()
}

// address removes parameters from the query of an address.
func address(full string, without ...string) string {
	path, query := split(full)
	for _, name := range without {
		query.Del(name)
	}
	if path == "" {
		path = "./"
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// Order is the address of the list ordered by a column, and in the other direction where it is ordered by it already.
func (l *List) Order(c Column) string {
	q := url.Values{}
	maps.Copy(q, l.Query)
	for _, name := range []string{"from", "after", "stage", "do", "live", "desc"} {
		q.Del(name)
	}
	q.Set("sort", c.Sort)
	// Numbers begin with the greatest, names with the first.
	if first := c.Number; c.Sort == l.Sorted && !l.Descending || c.Sort != l.Sorted && first {
		q.Set("desc", "1")
	}
	return l.Path + "?" + q.Encode()
}

// Arrow shows the direction in which a column is ordered; empty: the list is not ordered by it.
func (l *List) Arrow(c Column) string {
	switch {
	case c.Sort == "" || c.Sort != l.Sorted:
		return ""
	case l.Descending:
		return "descending"
	}
	return "ascending"
}

// To is the address of another page of the list.
func (l *List) To(q url.Values) string {
	for _, name := range []string{"do", "live"} {
		q.Del(name)
	}
	return l.Path + "?" + q.Encode()
}

// ID is the ID of the action's form. A form is morphed into no other: what a user has typed into it stays, and is sent with the action that
// the user saw.
func (a Action) ID() string {
	id := "do-" + a.Name
	for _, f := range a.Fields {
		if f.Hidden {
			id += "-" + f.Value
		}
	}
	return id
}

// Inline reports whether the action is a form on the page of its object.
func (a Action) Inline() bool { return a.Confirm == "" }

// Login is the page that asks for a token.
type Login struct {
	// Problem is why the last token was refused; empty: none was.
	Problem string
	// Next is the page that is shown afterwards.
	Next    string
	Version string
}

// RenderLogin writes the page that asks for a token.
func RenderLogin(w io.Writer, l Login) error {
	return parsed.ExecuteTemplate(w, "login", l)
}
