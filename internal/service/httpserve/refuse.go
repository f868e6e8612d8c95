package httpserve

import (
	"io"
	"net/http"
	"time"
)

// refusedRead is how long a connection is read on after its request was refused before the end of the body.
const refusedRead = time.Second

// countedBody knows whether a body was read to its end.
type countedBody struct {
	io.ReadCloser
	ended bool
}

// Read implements io.Reader.
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
