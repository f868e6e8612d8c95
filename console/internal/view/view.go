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

// Static contains the style sheet and the scripts.
//
//go:embed style.css app.js icon*.svg thirdparty/*.js
var Static embed.FS

// Version is part of the URLs of static files. It changes with any of them, so that browsers may keep them forever.
var Version = func() string {
	sum := sha256.New()
	_ = fs.WalkDir(Static, ".", func(name string, _ fs.DirEntry, _ error) error { // embedded files can always be read
		data, _ := Static.ReadFile(name) // a directory has no data
		_, _ = sum.Write(data)
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)[:6])
}()

// Layout contains what surrounds the content of a page.
type Layout struct {
	Page *Page
	// Nav contains the existing pages. Path and Query are those of the shown page.
	Nav   []Link
	Path  string
	Query url.Values
	// Place describes the system that the pages show.
	Place Place
	// Contexts links to the consoles of several accounts, by environment. It is empty for a single console.
	Contexts []Link
	// ReadOnly pages have no actions.
	ReadOnly bool
	// Login reports whether there is a session that can be ended, and Who is its user.
	Login bool
	Who   string
	// Did is the action whose outcome is shown, or nil.
	Did *Entry
	// Failure is shown in place of a page, unless it is nil.
	Failure *Failure
	// Confirm is the action that this page confirms, or nil.
	Confirm *Action
	Preview string
	// Streaming is set to write only the live part, for a page that app.js keeps current. Times are then absolute, so that the output changes only
	// with the data.
	Streaming bool
	Now       time.Time
}

// Place describes the system that the pages show. The header shows it.
type Place struct {
	// Environment is the configured name, or empty.
	Environment string
	// Server is the name of the server, URL its address, and Account the account of the connection. They are empty if unknown.
	Server, URL, Account string
}

// colors is the number of colours for environments in style.css. With 7, the usual names get different colours.
const colors = 7

// Color returns the number of the environment's colour, which depends only on its name.
func (p Place) Color() int {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(p.Environment)) // writing to a hash cannot fail
	return int(sum.Sum32() % colors)
}

// Failure explains why there is no page.
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

// scope is a value of a page with the layout in which it is shown.
type scope struct {
	L *Layout
	V any
}

// Render renders a page with a template: "layout" for a [Layout], or "login" for a [Login]. The template "live" renders the part of a layout's page
// that changes with its data.
func Render(template string, data any) ([]byte, error) {
	var b bytes.Buffer
	if err := parsed.ExecuteTemplate(&b, template, data); err != nil {
		return nil, fmt.Errorf("template %s: %w", template, err)
	}
	return b.Bytes(), nil
}

// address returns the URL of a page without some parameters, and with others.
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

// ofOneAction lists the parameters that belong to one action or request.
var ofOneAction = []string{"do", "live", "download"}

// Here returns the URL of the page with its filter, without the parameters of one action.
func (l *Layout) Here() string { return address(l.Path, l.Query, ofOneAction, nil) }

// With returns that URL with another parameter: "do" for the page that confirms an action, "live" for the page's stream of events.
func (l *Layout) With(name, value string) string {
	return address(l.Path, l.Query, ofOneAction, url.Values{name: {value}})
}

// Spans lists the selectable spans of charts, in hours.
var Spans = []string{"1", "6", "24"}

// Order returns the URL of the list ordered by a column. If it is already ordered by that column, the direction is reversed.
func (l *List) Order(c Column) string {
	order := url.Values{"sort": {c.Sort}}
	// Numbers start with the greatest, names with the first.
	if c.Sort == l.Sorted && !l.Descending || c.Sort != l.Sorted && c.Number {
		order.Set("desc", "1")
	}
	return address(l.Path, l.Query, []string{"desc", "from", "after", "stage", "do", "live"}, order)
}

// Arrow returns the direction in which a column is ordered, or "" if the list is not ordered by it.
func (l *List) Arrow(c Column) string {
	switch {
	case c.Sort == "" || c.Sort != l.Sorted:
		return ""
	case l.Descending:
		return "descending"
	}
	return "ascending"
}

// To returns the URL of another page of the list.
func (l *List) To(q url.Values) string { return address(l.Path, q, []string{"do", "live"}, nil) }

// ID returns the ID of the action's form. A form is never morphed into another: a user's input stays, and is sent with the action that the user saw.
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
	// Problem is why the last token was refused, or empty.
	Problem string
	// Next is the page to show afterwards.
	Next string
}
