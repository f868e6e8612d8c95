package httpserve

import (
	"io"
	"net/http"
	"time"
)

const (
	// stallTime is how long a client may take for the next paceChunk bytes of an answer. It begins with the answer, so that a handler may wait
	// for as long as it likes before.
	stallTime = 30 * time.Second
	paceChunk = 256 << 10
)

// paced cuts the connection of a client that does not read its answer.
type paced struct {
	http.ResponseWriter
	stall time.Duration
	body  *countedBody // nil: there is none
}

// pace serves requests with answers that clients have to read.
func pace(h http.Handler, stall time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ambiguous(r) {
			w.Header().Set("Connection", "close")
		}
		r, body := watchBody(r)
		p := &paced{w, stall, body}
		h.ServeHTTP(p, r)
		p.extend() // for what the server has in its buffer
	})
}

// ambiguous reports whether a proxy may see another end of a request than this server does, as of one with both Content-Length and
// Transfer-Encoding. The connection must not be kept then: what the proxy takes for the rest of the body would be another request (RFC
// 9112, 6.1). Package net/http deletes the header that it does not use, so this is every request with chunks, and every one of HTTP/1.0.
func ambiguous(r *http.Request) bool {
	return r.ProtoMajor == 1 && (r.ProtoMinor == 0 || len(r.TransferEncoding) > 0)
}

// extend moves the limit. A writer without one, as in tests of handlers, does not wait.
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

// refusedRead is how long a connection is read on after its request was refused before the end of the body.
const refusedRead = time.Second

// countedBody knows whether a body was read to its end.
type countedBody struct {
	io.ReadCloser
	ended bool
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// watchBody is a request whose body is watched, if there is one that could hold up the answer. HTTP/2 ends the stream of such a request
// by itself.
func watchBody(r *http.Request) (*http.Request, *countedBody) {
	if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody {
		return r, nil
	}
	// The server's own request keeps its body, of which the server has to know the type.
	r = r.WithContext(r.Context())
	b := &countedBody{ReadCloser: r.Body}
	r.Body = b
	return r, b
}

// refuse has the connection end with an answer that was given before the end of the body. Otherwise the server would wait for the rest of the
// body before it answers.
func (p *paced) refuse(code int) {
	if p.body == nil || p.body.ended || code < http.StatusBadRequest {
		return
	}
	p.Header().Set("Connection", "close")
	_ = http.NewResponseController(p.ResponseWriter).SetReadDeadline(time.Now().Add(refusedRead))
}
