package httpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/webhook"
)

// base is the address at which clients reach a listener behind reverse proxies. The zero value means the address that the client used. Links are
// paths and depend on the prefix alone, so that no header can send a client to another host.
type base struct {
	public  *url.URL // as configured; nil if it is not
	proxied bool     // a trusted proxy sent the request
	host    string   // the host that the client requested from that proxy; empty if unknown
	prefix  string   // precedes each path that the client sees: empty, or a path without a trailing slash
}

type baseKey struct{}

func baseOf(r *http.Request) base {
	b, _ := r.Context().Value(baseKey{}).(base)
	return b
}

func (b base) in(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), baseKey{}, b))
}

// prefixMost limits a prefix, because each link repeats it.
const prefixMost = 256

var prefixForm = regexp.MustCompile(`^(/[A-Za-z0-9._~:@+,=-]+)+$`)

// parsePrefix parses a path that precedes other paths. It removes a trailing slash.
func parsePrefix(text string) (string, error) {
	prefix := strings.TrimSuffix(text, "/")
	if prefix == "" || len(prefix) <= prefixMost && prefixForm.MatchString(prefix) && cleanPath(prefix) {
		return prefix, nil
	}
	return "", fmt.Errorf("%q: give a path such as /broker, of at most %d letters, digits, slashes and ._~:@+,=- (no segment is . or ..)", text,
		prefixMost)
}

// ParsePublicURL parses the URL at which clients reach a listener. It returns nil if text is empty.
func ParsePublicURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	if err := webhook.CheckURL(text); err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, fmt.Errorf("URL %q has more than scheme, host and path: give these alone", mask.URL(text))
	}
	if u.Path, err = parsePrefix(u.EscapedPath()); err != nil {
		return nil, fmt.Errorf("path %w", err)
	}
	u.RawPath = "" // prefixForm allows no escapes
	return u, nil
}

// based adds their base to requests: the public URL, or the values that a trusted proxy reports. It serves the request of such a proxy as if the
// proxy's client had sent it.
func based(public *url.URL, proxies Proxies, next http.Handler) http.Handler {
	if public == nil && len(proxies) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := base{public: public, proxied: proxies.trust(remote(r))}
		client := r.RemoteAddr
		if b.proxied {
			client = proxies.client(r)
			b.host = r.Header.Get("X-Forwarded-Host")
			for part := range strings.SplitSeq(strings.Join(r.Header.Values("X-Forwarded-Prefix"), ","), ",") { // each proxy adds its own prefix
				prefix, err := parsePrefix(strings.TrimSpace(part))
				if b.prefix += prefix; err == nil {
					_, err = parsePrefix(b.prefix)
				}
				if err != nil {
					http.Error(w, "X-Forwarded-Prefix "+err.Error(), http.StatusBadRequest)
					return
				}
			}
		}
		if public != nil {
			b.prefix = public.Path
		}
		r = b.in(r)
		r.RemoteAddr = client
		next.ServeHTTP(w, r)
	})
}

// Proxied reports whether a trusted proxy sent a request, so that the headers that the proxy sets are trustworthy.
func Proxied(r *http.Request) bool { return baseOf(r).proxied }

// Link returns the path at which the client of a request reaches a path of the system.
func Link(r *http.Request, path string) string { return baseOf(r).prefix + path }

// Here returns the path at which the client reaches name at the root of a handler, such as another page next to the current one. Without a known
// prefix, the path is relative.
func Here(r *http.Request, name string) string {
	if prefix := baseOf(r).prefix; prefix != "" {
		return prefix + "/" + name
	}
	return name
}

// Within returns a request with the path that the system routes. A proxy may leave the prefix in the path, and a client may append a link to its base
// URL. So Within removes the prefix repeatedly until the path has a route.
func Within(r *http.Request, routed func(*http.Request) bool) *http.Request {
	prefix := baseOf(r).prefix
	rest, ok := strings.CutPrefix(r.URL.Path, prefix)
	if prefix == "" || !ok || rest != "" && rest[0] != '/' || routed(r) {
		return r
	}
	inner, u := *r, *r.URL
	u.Path, u.RawPath = "/"+strings.TrimPrefix(rest, "/"), strings.TrimPrefix(u.RawPath, prefix)
	inner.URL = &u
	return Within(&inner, routed)
}

// PublicTarget returns the path and query of a request below the public URL, as the client has signed them.
func PublicTarget(r *http.Request) string {
	if public := baseOf(r).public; public != nil {
		return public.Path + r.RequestURI
	}
	return r.RequestURI
}

// Secure reports whether a client uses HTTPS. A client can forge this, but only a cookie depends on it.
func Secure(r *http.Request) bool {
	public := baseOf(r).public
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" || public != nil && public.Scheme == "https"
}

// describeBase adds the client's base to an OpenAPI document without servers. Without it, the paths would start at the root of the host.
func describeBase(r *http.Request, document []byte) []byte {
	b := baseOf(r)
	at := b.prefix
	if b.public != nil {
		at = b.public.String()
	}
	if at == "" {
		return document
	}
	servers, _ := json.Marshal([]map[string]string{{"url": at}}) // strings can always be encoded
	return bytes.Replace(document, []byte("{"), append(append([]byte(`{"servers":`), servers...), ','), 1)
}
