package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/jetpull/jetpull/console/internal/page"
)

// maxURL bounds the address of a request: a page repeats it in its links.
const maxURL = 48 << 10

// known is the request without the parameters that no page has, and with one value of each other one. Pages copy the query into their links, and
// open pages with the same address share a render.
func known(r *http.Request) *http.Request {
	q := url.Values{}
	for name, values := range r.URL.Query() {
		if page.Parameters[name] {
			q.Set(name, values[0])
		}
	}
	clean, address := *r, *r.URL
	address.RawQuery = q.Encode()
	clean.URL = &address
	return &clean
}

// here is the address of a request relative to the console's root.
func here(r *http.Request) string {
	return (&url.URL{Path: strings.TrimPrefix(r.URL.Path, "/"), RawQuery: r.URL.RawQuery}).String()
}

// redirect leads to a page relative to the present one, which is always at the console's root. So the console needs not know the
// path that it is served under.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
