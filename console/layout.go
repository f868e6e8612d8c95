package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/console/internal/page"
	"github.com/jetpull/jetpull/console/internal/source"
	"github.com/jetpull/jetpull/console/internal/view"
)

// askAccount asks for the account of the connection, once for each server to which it connects. A user that may not ask is refused each time. Then
// the header of the pages does not show the account.
func (c *Console) askAccount(ctx context.Context, j source.JetStream) {
	nc := j.Conn()
	connected := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(connected)
	for open := true; open; {
		if nc.IsConnected() {
			if account, err := j.AccountName(ctx); err == nil {
				c.account.Store(&account)
			}
		}
		select {
		case _, open = <-connected:
		case <-ctx.Done():
			open = false
		}
	}
}

// layout returns what surrounds a page for a user.
func (c *Console) layout(r *http.Request, u user) *view.Layout {
	place := view.Place{Environment: c.cfg.Environment}
	if j, ok := c.cfg.NATS.(source.JetStream); ok {
		place.Server, place.URL = j.Server()
	}
	if account := c.account.Load(); account != nil {
		place.Account = *account
	}
	return &view.Layout{
		Nav: c.nav, Place: place, Contexts: c.among.links, Path: strings.TrimPrefix(r.URL.Path, "/"), Query: r.URL.Query(),
		ReadOnly: u.role != Admin, Login: c.cfg.Access != nil, Who: u.name, Now: time.Now(),
	}
}

// maxURL is the maximum length of a request's URL, because a page repeats it in its links.
const maxURL = 48 << 10

// known returns the request without parameters that no page has, and with one value per parameter. Pages copy the query into their links, and open
// pages with the same URL share a render.
func known(r *http.Request) *http.Request {
	q := url.Values{}
	for name, values := range r.URL.Query() {
		if slices.Contains(page.Parameters, name) {
			q.Set(name, values[0])
		}
	}
	r = r.Clone(r.Context())
	r.URL.RawQuery = q.Encode()
	return r
}

// here returns the URL of a request relative to the console's root.
func here(r *http.Request) string {
	return (&url.URL{Path: strings.TrimPrefix(r.URL.Path, "/"), RawQuery: r.URL.RawQuery}).String()
}

// redirect redirects to a page relative to the current one, which is always at the console's root. So the console need not know the path at which it
// is served.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
