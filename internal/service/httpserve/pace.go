package httpserve

import (
	"io"
	"net/http"
	"time"
)

const (
	// stallTime is how long a client may take to read the next paceChunk bytes of a response. It starts with the response, so that the handler may
	// wait before for as long as it needs.
	stallTime = 30 * time.Second
	paceChunk = 256 << 10
)

// paced closes the connection of a client that does not read its response.
type paced struct {
	http.ResponseWriter
	stall time.Duration
	body  *countedBody // nil if there is none
}

// pace serves requests, and requires clients to read their responses.
func pace(h http.Handler, stall time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ambiguous(r) {
			w.Header().Set("Connection", "close")
		}
		r, body := watchBody(r)
		p := &paced{w, stall, body}
		h.ServeHTTP(p, r)
		p.extend() // for the data in the server's buffer
	})
}

// ambiguous reports whether a proxy may see another end of a request than this server, as for one with both Content-Length and Transfer-Encoding.
// Then the connection must be closed: the bytes that the proxy takes for the rest of the body would be another request (RFC 9112, 6.1). Package
// net/http deletes the header that it does not use, so this includes every request in chunks. It also includes every HTTP/1.0 request.
func ambiguous(r *http.Request) bool {
	return r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0)
}

// extend moves the deadline. A writer without deadlines, as in tests of handlers, does not wait.
func (p *paced) extend() {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(p.stall))
}

func (p *paced) WriteHeader(code int) {
	p.extend()
	p.refuse(code)
	p.ResponseWriter.WriteHeader(code)
}

func (p *paced) Write(b []byte) (written int, err error) {
	for {
		p.extend()
		n, err := p.ResponseWriter.Write(b[:min(len(b), paceChunk)])
		written += n
		if b = b[n:]; err != nil || len(b) == 0 {
			return written, err
		}
	}
}

// Unwrap lets http.ResponseController find the connection.
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// refusedRead is how long to keep reading from a connection after its request was refused before the end of the body.
const refusedRead = time.Second

// countedBody records whether a body was read to its end.
type countedBody struct {
	io.ReadCloser
	ended bool
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// watchBody returns a request whose body records its end, if the request has a body that could delay the response. HTTP/2 itself ends the stream of
// such a request.
func watchBody(r *http.Request) (*http.Request, *countedBody) {
	if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	// The server's own request must keep its body, because the server depends on the body's type.
	r = r.WithContext(r.Context())
	b := &countedBody{ReadCloser: r.Body}
	r.Body = b
	return r, b
}

// refuse closes the connection after a response that was given before the end of the body. Otherwise the server would wait for the rest of the body
// before it sends the response.
func (p *paced) refuse(code int) {
	if p.body == nil || p.body.ended || code < http.StatusBadRequest {
		return
	}
	p.Header().Set("Connection", "close")
	_ = http.NewResponseController(p.ResponseWriter).SetReadDeadline(time.Now().Add(refusedRead))
}
