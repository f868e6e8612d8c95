package view

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"html/template"
	"io/fs"
	"maps"
	"net/url"
	"time"
)

//go:embed templates/*.html
var templates embed.FS

// Static are the style sheet and the scripts.
//
//go:embed style.css app.js icon*.svg thirdparty/*.js
var Static embed.FS

// Version is part of the addresses of static files. It changes with any of them, so that browsers may keep them for ever.
var Version = func() string {
	sum := sha256.New()
	_ = fs.WalkDir(Static, ".", func(name string, _ fs.DirEntry, _ error) error { // files in the binary can be read
		data, _ := Static.ReadFile(name) // a directory has none
		_, _ = sum.Write(data)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)[:6])
}()

// Layout is what a page has around its content.
type Layout struct {
	Page *Page
	// Nav are the pages that there are, and Path and Query the one that is shown.
	Nav   []Link
	Path  string
	Query url.Values
	// Place is what the pages are about.
	Place Place
	// Contexts are the consoles of several accounts, by their environments; empty: there is this one alone.
	Contexts []Link
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

// Failure is why there is no page.
type Failure struct {
	Title, Text, Fix string
	Back             string
}

var parsed = template.Must(template.New("").Funcs(template.FuncMap{
	"ago":   ago,
	"iso":   At,
	"ctx":   func(l *Layout, v any) scope { return scope{l, v} },
	"prose": prose,
	"when":  func(t time.Time) Value { return Value{Time: t} },

	"version": func() string { return Version },
	"spans":   func() []string { return Spans },
}).ParseFS(templates, "templates/*.html"))

// scope is a value of a page with the layout that it is shown in.
type scope struct {
	L *Layout
	V any
}

// Render is a whole page of a template: "layout" for a [Layout], or "login" for a [Login]. The template "live" has the part of a layout's page that
// changes with its data.
func Render(template string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := parsed.ExecuteTemplate(&b, template, data); err != nil {
		return nil, fmt.Errorf("template %s: %w", template, err)
	}
	return b.Bytes(), nil
}

// address is the address of a page with some parameters less, and with others.
func address(path string, q url.Values, without []string, with url.Values) string {
	all := url.Values{}
	maps.Copy(all, q)
	for _, name := range without {
		all.Del(name)
	}
	maps.Copy(all, with)
	if path = cmp.Or(path, "./"); len(all) == 0 {
		return path
	}
	return path + "?" + all.Encode()
}

// ofOneAction are the parameters that belong to one action or request.
var ofOneAction = []string{"do", "live", "download"}

// Here is the address of the page, with its filter and without what belongs to one action.
func (l *Layout) Here() string { return address(l.Path, l.Query, ofOneAction, nil) }

// With is that address with another parameter: "do" for the page that confirms an action, "live" for the page's stream of events.
func (l *Layout) With(name, value string) string {
	return address(l.Path, l.Query, ofOneAction, url.Values{name: {value}})
}

// Spans are the spans of charts that can be chosen, in hours.
var Spans = []string{"1", "6", "24"}

// Order is the address of the list ordered by a column, and in the other direction where it is ordered by it already.
func (l *List) Order(c Column) string {
	order := url.Values{"sort": {c.Sort}}
	// Numbers begin with the greatest, names with the first.
	if c.Sort == l.Sorted && !l.Descending || c.Sort != l.Sorted && c.Number {
		order.Set("desc", "1")
	}
	return address(l.Path, l.Query, []string{"desc", "from", "after", "stage", "do", "live"}, order)
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
func (l *List) To(q url.Values) string { return address(l.Path, q, []string{"do", "live"}, nil) }

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

// Login is the page that asks for a token.
type Login struct {
	// Problem is why the last token was refused; empty: none was.
	Problem string
	// Next is the page that is shown afterwards.
	Next string
}
