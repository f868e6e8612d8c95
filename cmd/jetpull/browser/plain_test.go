package test

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
)

// plain uses the pages as a browser without scripts does, by requests alone: it follows the links that a page has, and sends its forms.
type plain struct {
	t    *testing.T
	base string

	// at, status and doc are of the last answer.
	at     *url.URL
	status int
	doc    *html.Node
}

func (p *plain) open(page string) {
	p.t.Helper()
	at, err := url.Parse(p.base + page)
	require.NoError(p.t, err)
	p.send(http.MethodGet, at, nil)
}

func (p *plain) send(method string, to *url.URL, form url.Values) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, to.String(), strings.NewReader(form.Encode()))
	require.NoError(p.t, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(p.t, err)
	defer answer.Body.Close()
	p.at, p.status = answer.Request.URL, answer.StatusCode
	p.doc, err = html.Parse(answer.Body)
	require.NoError(p.t, err)
}

// press follows a link, or sends the form of a button.
func (p *plain) press(label string) {
	p.t.Helper()
	e := p.find(label, func(e *html.Node) bool {
		return (e.Data == "a" || e.Data == "button") && strings.Join(strings.Fields(textOf(e)), " ") == label
	})
	if e.Data == "a" {
		p.send(http.MethodGet, p.resolve(attr(e, "href")), nil)
		return
	}
	form := e
	for form.Data != "form" {
		form = form.Parent
		require.NotNil(p.t, form, "the button %s has a form", label)
	}
	values := url.Values{}
	if name := attr(e, "name"); name != "" {
		values.Add(name, attr(e, "value"))
	}
	for field := range form.Descendants() {
		if name := attr(field, "name"); name != "" && field.Data != "button" {
			require.False(p.t, has(field, "required") && valueOf(field) == "", "a browser sends no form in which %s is missing", name)
			values.Add(name, valueOf(field))
		}
	}
	to := p.resolve(attr(form, "action"))
	if attr(form, "method") == "post" {
		p.send(http.MethodPost, to, values)
		return
	}
	to.RawQuery = values.Encode()
	p.send(http.MethodGet, to, nil)
}

func (p *plain) fill(name, text string) {
	p.t.Helper()
	field := p.find(name, func(e *html.Node) bool { return attr(e, "name") == name && attr(e, "type") != "hidden" })
	require.Equal(p.t, "input", field.Data)
	field.Attr = slices.DeleteFunc(field.Attr, func(a html.Attribute) bool { return a.Key == "value" })
	field.Attr = append(field.Attr, html.Attribute{Key: "value", Val: text})
}

func (p *plain) search(text string) {
	p.t.Helper()
	p.fill("q", text)
	p.press("Filter")
}

// eventually fails unless the page has all of these: a page without scripts does not change.
func (p *plain) eventually(texts ...string) {
	p.t.Helper()
	require.Equal(p.t, http.StatusOK, p.status, p.at)
	for _, one := range texts {
		require.Contains(p.t, p.text(), one, p.at)
	}
}

func (p *plain) text() string { return strings.Join(strings.Fields(textOf(p.doc)), " ") }

// find is the first element of the page's content that fulfils a condition.
func (p *plain) find(what string, is func(e *html.Node) bool) *html.Node {
	p.t.Helper()
	for main := range p.doc.Descendants() {
		if main.Data != "main" {
			continue
		}
		for e := range main.Descendants() {
			if e.Type == html.ElementNode && is(e) {
				return e
			}
		}
	}
	require.Fail(p.t, "no such element", "%s: %s in %s", p.at, what, p.text())
	return nil
}

// live is the stream of events of an open page.
type live struct {
	t    *testing.T
	page *url.URL
	in   *bufio.Scanner
	end  func()
}

// stream is where the stream of the page is; empty: it has none.
func (p *plain) stream() string {
	for e := range p.doc.Descendants() {
		if to := attr(e, "hx-sse:connect"); to != "" {
			return to
		}
	}
	return ""
}

// live opens the stream of the page, until the test ends.
func (p *plain) live() *live {
	p.t.Helper()
	ctx, end := context.WithCancel(p.t.Context())
	p.t.Cleanup(end)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.resolve(p.stream()).String(), nil)
	require.NoError(p.t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = answer.Body.Close() })
	require.Equal(p.t, http.StatusOK, answer.StatusCode)
	l := &live{t: p.t, page: p.at, in: bufio.NewScanner(answer.Body), end: end}
	l.in.Buffer(nil, 1<<20)
	return l
}

// until waits until the text of what the stream has the page show fulfils a condition, and returns it.
func (l *live) until(want string, is func(text string) bool) string {
	l.t.Helper()
	defer time.AfterFunc(waitMost, l.end).Stop()
	last, named, data := "", false, ""
	for l.in.Scan() {
		line := l.in.Text()
		if more, ok := strings.CutPrefix(line, "data: "); ok {
			data += more + "\n"
			continue
		}
		if line != "" {
			named = true
			continue
		}
		if !named {
			doc, err := html.Parse(strings.NewReader(data))
			require.NoError(l.t, err)
			if last = strings.Join(strings.Fields(textOf(doc)), " "); is(last) {
				return last
			}
		}
		named, data = false, ""
	}
	require.Fail(l.t, "the stream ends", "%s: %v, and %s does not come to be in: %s", l.page, l.in.Err(), want, last)
	return ""
}

func (p *plain) resolve(href string) *url.URL {
	p.t.Helper()
	to, err := p.at.Parse(href)
	require.NoError(p.t, err)
	return to
}

func attr(e *html.Node, key string) string {
	for _, a := range e.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func has(e *html.Node, key string) bool {
	return slices.ContainsFunc(e.Attr, func(a html.Attribute) bool { return a.Key == key })
}

// valueOf is what a form sends for a field.
func valueOf(field *html.Node) string {
	switch field.Data {
	case "textarea":
		return textOf(field)
	case "select":
		first := ""
		for option := range field.Descendants() {
			if option.Data == "option" && has(option, "selected") {
				return attr(option, "value")
			}
			if option.Data == "option" && first == "" {
				first = attr(option, "value")
			}
		}
		return first
	}
	return attr(field, "value")
}

// textOf is the text of an element.
func textOf(e *html.Node) string {
	var b strings.Builder
	for n := range e.Descendants() {
		if n.Type == html.TextNode && n.Parent.Data != "script" && n.Parent.Data != "style" {
			b.WriteString(n.Data)
		}
	}
	return b.String()
}
