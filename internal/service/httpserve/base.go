package httpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/jetpull/jetpull/internal/mask"
)

// base is the address by which clients know a listener behind reverse proxies. The zero value is that of a client that needs no other than it has
// used. Links are paths, which need the prefix alone: no header can lead a client to another host.
type base struct {
	public *url.URL // as configured; nil: it is not
	host   string   // that a trusted proxy was asked for; empty: not known
	prefix string   // of each path that the client sees: empty, or a path without a slash at its end
}

type baseKey struct{}

func baseOf(r *http.Request) base {
	b, _ := r.Context().Value(baseKey{}).(base)
	return b
}

func (b base) in(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), baseKey{}, b))
}

// prefixMost bounds a prefix, which each link repeats.
const prefixMost = 256

var prefixForm = regexp.MustCompile(`^(/[A-Za-z0-9._~:@+,=-]+)+$`)

// parsePrefix reads a path in front of other paths. A slash at its end does not count.
func parsePrefix(text string) (string, error) {
	prefix := strings.TrimSuffix(text, "/")
	if prefix == "" || len(prefix) <= prefixMost && prefixForm.MatchString(prefix) && cleanPath(prefix) {
		return prefix, nil
	}
	return "", fmt.Errorf("%q: give a path such as /broker, of at most %d letters, digits, slashes and ._~:@+,=- (no segment is . or ..)", text,
		prefixMost)
}

// ParsePublicURL reads the URL by which clients reach a listener. It is nil for an empty text.
func ParsePublicURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	shown := mask.URL(text)
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is not a URL such as https://example.com/broker", shown)
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, fmt.Errorf("%q has more than scheme, host and path: give these alone", shown)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("%q has no port from 1 to 65535: give one", shown)
		}
	}
	if u.Path, err = parsePrefix(u.EscapedPath()); err != nil {
		return nil, fmt.Errorf("path %w", err)
	}
	u.RawPath = "" // the form has no escapes
	return u, nil
}

// based serves requests with their base: the public URL, or else what a trusted proxy says.
func based(public *url.URL, proxies Proxies, next http.Handler) http.Handler {
	if public == nil && len(proxies) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := base{public: public}
		if proxies.trust(remote(r)) {
			b.host = r.Header.Get("X-Forwarded-Host")
			for part := range strings.SplitSeq(strings.Join(r.Header.Values("X-Forwarded-Prefix"), ","), ",") { // each proxy adds its own
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
		next.ServeHTTP(w, b.in(r))
	})
}

// Link is the path by which the client of a request reaches a path of the system.
func Link(r *http.Request, path string) string { return baseOf(r).prefix + path }

// Here is where the client finds what is at the root of a handler, such as another page beside the present one. It is relative where no
// prefix is known.
func Here(r *http.Request, name string) string {
	if prefix := baseOf(r).prefix; prefix != "" {
		return prefix + "/" + name
	}
	return name
}

// Within is a request as the system routes it. A proxy may leave the prefix in the path, and a client may add a link to its base URL: the prefix
// is removed as often as the path has no route with it.
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

// PublicTarget is the path and query of a request below the public URL, as a client has signed them.
func PublicTarget(r *http.Request) string {
	if public := baseOf(r).public; public != nil {
		return public.Path + r.RequestURI
	}
	return r.RequestURI
}

// Secure reports whether a client uses HTTPS. It need not be true: only a cookie depends on it.
func Secure(r *http.Request) bool {
	public := baseOf(r).public
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" || public != nil && public.Scheme == "https"
}

// describeBase adds the client's base to an OpenAPI document without servers, which would be at the root of the host.
func describeBase(r *http.Request, document []byte) []byte {
	b := baseOf(r)
	at := b.prefix
	if b.public != nil {
		at = b.public.String()
	}
	if at == "" {
		return document
	}
	servers, _ := json.Marshal([]map[string]string{{"url": at}}) // texts can be written
	return bytes.Replace(document, []byte("{"), append(append([]byte(`{"servers":`), servers...), ','), 1)
}
