package broker

import (
	"net/http"
	"net/http/httptrace"
	"sync"

	"github.com/jetpull/jetpull/broker/client"
)

// flights tracks the requests of one kind: those that were sent completely and have no answer yet, and those that never got one.
type flights struct {
	match     func(*http.Request) bool
	transport *http.Transport

	mu     sync.Mutex
	flying int
	cut    int
}

func newFlights(match func(*http.Request) bool) *flights {
	return &flights{match: match, transport: &http.Transport{MaxIdleConnsPerHost: 32}}
}

// client returns a client of the process whose requests are tracked.
func (f *flights) client(m *mortal) *client.Client {
	return client.New("http://"+m.listen, &http.Client{Transport: f})
}

// flight is one request. The transport may report the end of sending after the answer has arrived.
type flight struct{ sent, ended bool }

// RoundTrip implements http.RoundTripper.
func (f *flights) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.match(r) {
		return f.transport.RoundTrip(r)
	}
	var one flight
	sent := func(info httptrace.WroteRequestInfo) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if info.Err == nil && !one.sent && !one.ended {
			one.sent = true
			f.flying++
		}
	}
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{WroteRequest: sent})
	resp, err := f.transport.RoundTrip(r.WithContext(ctx))
	f.mu.Lock()
	defer f.mu.Unlock()
	one.ended = true
	if one.sent {
		f.flying--
		if err != nil {
			f.cut++
		}
	}
	return resp, err
}

func (f *flights) counts() (flying, cut int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flying, f.cut
}
