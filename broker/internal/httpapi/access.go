package httpapi

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/signature"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

func adminToken(r *http.Request) string {
	if token := r.Header.Get("X-Broker-Admin-Token"); token != "" {
		return token
	}
	return httpserve.Bearer(r)
}

// roleOf returns the role of a request in its channel. The admin token has all rights. If none is configured, every request has.
func (a *API) roleOf(r *http.Request) (domain.Role, error) {
	if a.opts.Admin.Token == "" || a.isAdmin(r) {
		return domain.Role(admin), nil
	}
	return a.Directory.RoleOf(r.PathValue("channel"), adminToken(r))
}

func (a *API) isAdmin(r *http.Request) bool {
	return a.opts.Admin.Token != "" && domain.TokenMatches(a.opts.Admin.Token, adminToken(r))
}

var errNoAdmin = refuse(http.StatusUnauthorized, "admin token missing or wrong")

func (a *API) checkAccess(r *http.Request, access int) error {
	if access == open {
		return nil
	}
	needs := domain.Role(access)
	role, err := a.roleOf(r)
	switch {
	case err != nil || role >= needs:
		return err
	case role == domain.RoleNone:
		return a.logins.Refuse(r, adminToken(r), errNoAdmin)
	}
	wants := "the admin token"
	if access < admin {
		wants = "the role " + needs.String() + ", or " + wants
	}
	return refuse(http.StatusForbidden, "the access token has the role "+role.String()+": this needs "+wants)
}

// manages reports whether a request may change its channel, as far as this node knows. If the role is unknown, it may not.
func (a *API) manages(r *http.Request) bool {
	role, err := a.roleOf(r)
	return err == nil && role >= domain.RoleManage
}

// managesByToken reports whether a request has the admin token, or an access token that may change its channel. Either replaces the tokens of the
// channel and of its producers and consumers.
func (a *API) managesByToken(r *http.Request) bool { return a.opts.Admin.Token != "" && a.manages(r) }

// shownURL returns a callback URL. It masks the URL's query and user, which may be secret, for requests that may not see them.
func (a *API) shownURL(r *http.Request, callback string) string {
	if !a.manages(r) {
		return mask.URL(callback)
	}
	return callback
}

// who returns the name of the holder of a request's rights, for records of operations.
func (a *API) who(r *http.Request) string {
	switch {
	case a.opts.Admin.Token == "":
		return ""
	case a.isAdmin(r):
		return "admin"
	}
	return "access token of " + r.PathValue("channel")
}

// noncesMost is the maximum number of remembered nonces, of about 50 bytes each.
const noncesMost = 1 << 20

// Gateway checks the signatures of requests.
type Gateway struct {
	Key []byte
	// Scheme is the scheme that requests must use: signature.V1, which accepts both, or V2.
	Scheme string
	// Tolerance is the maximum difference between a signature's time and the clock.
	Tolerance time.Duration
	// Exempt lists prefixes of paths that need no signature, in addition to /healthz and /readyz.
	Exempt []string
}

var (
	errMissingSignature   = refuse(http.StatusUnauthorized, "missing X-Broker-Signature header")
	errMalformedSignature = refuse(http.StatusUnauthorized, "malformed X-Broker-Signature header")
	errOldScheme          = refuse(http.StatusUnauthorized, "the X-Broker-Signature header has v1: this broker needs t=SECONDS,n=NONCE,v2=HEX")
	errStaleSignature     = refuse(http.StatusForbidden, "request timestamp outside tolerance window")
	errWrongSignature     = refuse(http.StatusForbidden, "invalid signature")
	errUsedNonce          = refuse(http.StatusForbidden, "the nonce of X-Broker-Signature was used before: sign each request anew")
	errManyNonces         = refuse(http.StatusServiceUnavailable,
		"too many signed requests within the tolerance of their time: try again later, or lower hmac-timestamp-tolerance-seconds")
)

// verifyGateway checks the signature that a gateway adds to a request. It reads the body and restores it.
func (a *API) verifyGateway(r *http.Request) error {
	g := a.opts.Gateway
	// Health probes, such as those of Kubernetes, cannot sign.
	if g == nil || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" ||
		slices.ContainsFunc(g.Exempt, func(prefix string) bool { return strings.HasPrefix(r.URL.Path, prefix) }) {
		return nil
	}
	header := r.Header.Get(signature.Header)
	if header == "" {
		return errMissingSignature
	}
	signed, err := signature.Parse(header)
	switch {
	case err != nil:
		return errMalformedSignature
	case g.Scheme == signature.V2 && signed.Scheme != signature.V2:
		return errOldScheme
	case a.b.Now().Sub(signed.At).Abs() > g.Tolerance:
		return errStaleSignature
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, int64(a.opts.HTTP.MaxBodyBytes)))
	if err != nil {
		return httpserve.ReadError(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	asked := signature.Request{Method: r.Method, Target: r.RequestURI, Body: body}
	public := asked // a proxy has removed the path of the public URL
	public.Target = httpserve.PublicTarget(r)
	if !signed.Matches(g.Key, asked) && !signed.Matches(g.Key, public) {
		return errWrongSignature
	}
	if signed.Scheme == signature.V1 {
		return nil
	}
	switch first, fits := a.nonces.Use(time.Now(), signed.Nonce); {
	case !first:
		return errUsedNonce
	case !fits:
		return errManyNonces
	}
	return nil
}
