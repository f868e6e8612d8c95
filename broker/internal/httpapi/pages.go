package httpapi

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

const (
	pageSize    = 25
	maxPageSize = 100
)

// listResult is the JSON form of most lists.
type listResult struct {
	Result []string
	Pages  map[string]string
	Links  map[string]string
}

// cursor returns a position as clients see it: base64 of two numbers.
func cursor(p domain.Position) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.At, 36) + "|" + strconv.FormatUint(p.Seq, 36)))
}

func parseCursor(s string) (domain.Position, bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return domain.Position{}, false
	}
	first, second, ok := strings.Cut(string(raw), "|")
	at, err1 := strconv.ParseInt(first, 36, 64)
	seq, err2 := strconv.ParseUint(second, 36, 64)
	p := domain.Position{At: at, Seq: seq}
	// Another encoding of the same cursor is refused, so that each position has one cursor.
	return p, ok && err1 == nil && err2 == nil && cursor(p) == s
}

// pageOf returns the page that a request asks for. An invalid cursor is an error, because a client that got the first page instead would loop.
func pageOf(r *http.Request) (domain.Page, error) {
	page := domain.Page{Limit: pageSize}
	query := r.URL.Query()
	for name, field := range map[string]**domain.Position{"next": &page.After, "previous": &page.Before} {
		if s := query.Get(name); s != "" {
			p, ok := parseCursor(s)
			if !ok {
				return page, httpserve.BadQuery(r, name, "what a link of a page before has")
			}
			*field = &p
		}
	}
	if page.After != nil && page.Before != nil {
		return page, httpserve.BadRequest("invalid query parameter: next and previous: give one of them")
	}
	return page, nil
}

// paged returns a page of an in-memory list that is ordered by number, newest first.
func paged[T any](items []T, number func(T) uint32, page domain.Page) []T {
	switch {
	case page.After != nil:
		items = slices.DeleteFunc(items, func(t T) bool { return int64(number(t)) >= page.After.At })
	case page.Before != nil:
		items = slices.DeleteFunc(items, func(t T) bool { return int64(number(t)) <= page.Before.At })
		return items[max(0, len(items)-page.Limit):]
	}
	return items[:min(len(items), page.Limit)]
}

func listOf[T any](r *http.Request, items []T, url func(*http.Request, T) string, position func(T) domain.Position) listResult {
	result := listResult{Result: make([]string, 0, len(items))}
	for _, item := range items {
		result.Result = append(result.Result, url(r, item))
	}
	result.Pages = pageLinks(r, items, position)
	return result
}

// pageLinks returns the links to the pages before and after a page that is not empty. They keep the filter.
func pageLinks[T any](r *http.Request, items []T, position func(T) domain.Position) map[string]string {
	pages := map[string]string{}
	if len(items) == 0 {
		return pages
	}
	for name, item := range map[string]T{"previous": items[0], "next": items[len(items)-1]} {
		pages[name] = pageLink(r, name, position(item))
	}
	return pages
}

// pageLink returns the link to a page, with the filter of a request.
func pageLink(r *http.Request, name string, p domain.Position) string {
	query := r.URL.Query()
	query.Del("next")
	query.Del("previous")
	query.Set(name, cursor(p))
	return httpserve.Link(r, (&url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: query.Encode()}).String())
}

// listed returns the page and the status that a request for a list of messages asks for. Status 0 means any.
func listed(r *http.Request) (page domain.Page, status domain.MessageStatus, err error) {
	switch s := r.URL.Query().Get("status"); s {
	case "":
	case "101":
		status = domain.Pending
	case "102":
		status = domain.Dispatched
	default:
		return page, 0, httpserve.BadRequest("invalid query parameter: status %q: give 101 or 102", s)
	}
	page, err = pageOf(r)
	return page, status, err
}
