package httpserve

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
)

// Mount serves another handler at a path that ends with a slash, such as "/console/", and rest at all others. The other handler sees the
// path below. Its requests end with ctx: they may be streams, for which a stop would wait. Nil: rest serves all.
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

// InProcess carries requests to a handler in this process. It buffers the answers.
type InProcess struct{ Handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (p InProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	a := &answer{header: http.Header{}}
	served := r.Clone(r.Context())
	served.RequestURI, served.RemoteAddr = r.URL.RequestURI(), nowhere
	if served.Body == nil {
		served.Body = http.NoBody
	}
	if served.Host == "" {
		served.Host = r.URL.Host
	}
	p.Handler.ServeHTTP(a, served)
	return a.response(r), nil
}

// answer is a response that is not sent.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

func (a *answer) response(r *http.Request) *http.Response {
	a.WriteHeader(http.StatusOK)
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: a.header,
		Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()), Request: r,
	}
}
