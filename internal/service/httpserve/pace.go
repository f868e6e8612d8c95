package httpserve

import (
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
		r, body := watchBody(r)
		p := &paced{w, stall, body}
		h.ServeHTTP(p, r)
		p.extend() // for what the server has in its buffer
	})
}

// extend moves the limit. A writer without one, as in tests of handlers, does not wait.
func (p *paced) extend() {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(p.stall))
}

// WriteHeader implements http.ResponseWriter.
func (p *paced) WriteHeader(code int) {
	p.extend()
	p.refuse(code)
	p.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
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
