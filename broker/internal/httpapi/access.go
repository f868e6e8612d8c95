package httpapi

import (
	"net/http"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// adminToken is the token that a request proves its right with.
func adminToken(r *http.Request) string {
	if token := r.Header.Get("X-Broker-Admin-Token"); token != "" {
		return token
	}
	return httpserve.Bearer(r)
}

// roleOf is what a request may do in its channel: all, with the admin token, or if there is none.
func (a *API) roleOf(r *http.Request) (domain.Role, error) {
	if a.opts.AdminToken == "" || a.isAdmin(r) {
		return domain.RoleManage, nil
	}
	return a.b.Registry.RoleOf(r.PathValue("channel"), adminToken(r))
}

// isAdmin tells whether a request has the admin token, from an address that has not shown too many wrong ones.
func (a *API) isAdmin(r *http.Request) bool {
	return a.opts.AdminToken != "" && a.logins.Wait(r) == 0 && domain.TokenMatches(a.opts.AdminToken, adminToken(r))
}

var errNoAdmin = refuse(http.StatusUnauthorized, "admin token missing or wrong")

// checkAccess refuses a request that may not do what its route does.
func (a *API) checkAccess(r *http.Request, needs int) error {
	if needs == open || a.opts.AdminToken == "" || a.isAdmin(r) {
		return nil
	}
	role := domain.RoleNone
	if r.PathValue("channel") != "" {
		var err error
		if role, err = a.roleOf(r); err != nil {
			return err
		}
	}
	if needs == reads && role >= domain.RoleRead || needs == manages && role >= domain.RoleManage {
		return nil
	}
	if role > domain.RoleNone {
		return refuse(http.StatusForbidden, "the access token has the role "+role.String()+": this needs the role "+domain.RoleManage.String()+", or the admin token")
	}
	return a.logins.Refuse(r, adminToken(r), errNoAdmin)
}

// manages tells whether a request may change its channel, as far as is known now.
func (a *API) manages(r *http.Request) bool {
	role, err := a.roleOf(r)
	return err == nil && role >= domain.RoleManage
}

// shownToken is a stored token for those who may see it.
func (a *API) shownToken(r *http.Request, stored string) string {
	if domain.Hashed(stored) || !a.manages(r) {
		return ""
	}
	return stored
}

// shownURL is a callback URL, whose query and user may be secret, for those who may see it.
func (a *API) shownURL(r *http.Request, callback string) string {
	if !a.manages(r) {
		return mask.URL(callback)
	}
	return callback
}

// who names the holder of a request's right, for records of what was done.
func (a *API) who(r *http.Request) string {
	switch {
	case a.opts.AdminToken == "":
		return ""
	case a.isAdmin(r):
		return "admin"
	}
	return "access token of " + r.PathValue("channel")
}
