package httpserve

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
)

// Mount serves other at a path that ends with a slash, such as "/console/", and rest at all other paths. other sees the path below. Its requests end
// with ctx, because they may be streams, for which a stop would wait. If other is nil, rest serves all paths.
func Mount(ctx context.Context, path string, other, rest http.Handler) http.Handler {
	if other == nil {
		return rest
	}
	below := strings.TrimSuffix(path, "/")
	other = http.StripPrefix(below, other)
	mounted := func(r *http.Request) bool { return r.URL.Path == below || strings.HasPrefix(r.URL.Path, path) }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner := Within(r, mounted)
		switch {
		case !mounted(inner):
			rest.ServeHTTP(w, r)
		case inner.URL.Path == below:
			redirect(w, http.StatusSeeOther, below[strings.LastIndexByte(below, '/')+1:]+"/")
		default:
			request, cancel := context.WithCancel(inner.Context())
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			b := baseOf(r)
			b.prefix += below
			other.ServeHTTP(w, b.in(inner.WithContext(request)))
		}
	})
}

// nowhere is an address from which no connection can come.
const nowhere = "0.0.0.0:0"

// InProcess sends requests to a handler in this process. It buffers the responses.
type InProcess struct{ Handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (p InProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	served := r.Clone(r.Context())
	served.RequestURI, served.RemoteAddr = r.URL.RequestURI(), nowhere
	if served.Body == nil {
		served.Body = http.NoBody
	}
	if served.Host == "" {
		served.Host = r.URL.Host
	}
	p.Handler.ServeHTTP(answer, served)
	resp := answer.Result()
	resp.Request, resp.ContentLength = r, int64(answer.Body.Len())
	return resp, nil
}
