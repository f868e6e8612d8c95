package console

import (
	"context"
	"net/http"
	"time"

	"github.com/jetpull/jetpull/console/internal/source"
	"github.com/jetpull/jetpull/console/internal/view"
)

// serverInterval is the time after which the console sees that its connection leads to another server.
const serverInterval = time.Second

// askAccount asks for the account of the connection, once for each server that it leads to: a user that may not ask is refused each time, and
// the header of the pages leaves the account out.
func (c *Console) askAccount(ctx context.Context, j source.JetStream) {
	ticker := time.NewTicker(serverInterval)
	defer ticker.Stop()
	for asked := ""; ctx.Err() == nil; {
		if server := j.JS.Conn().ConnectedServerId(); server != "" && server != asked {
			asked = server
			if account, err := j.AccountName(ctx); err == nil {
				c.account.Store(&account)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// layout is what surrounds a page for a user.
func (c *Console) layout(r *http.Request, u user) *view.Layout {
	l := &view.Layout{
		Nav: c.nav, Place: c.place(), Path: here(r), ReadOnly: u.role != Admin, Login: c.cfg.Access != nil, Who: u.name, Now: time.Now(),
		Version: c.version,
	}
	if c.among != nil {
		l.Contexts = c.among.links
	}
	return l
}

// place is the environment, the server and the account that the pages are about.
func (c *Console) place() view.Place {
	p := view.Place{Environment: c.cfg.Environment}
	if j, ok := c.cfg.NATS.(source.JetStream); ok {
		p.Server, p.URL = j.Server()
	}
	if account := c.account.Load(); account != nil {
		p.Account = *account
	}
	return p
}
