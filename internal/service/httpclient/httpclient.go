// Package httpclient has the shared parts of the HTTP clients of the systems.
package httpclient

import "net/http"

// New returns a client like c, or one with the default transport if c is nil. The client follows no redirects, because package net/http would send
// the tokens and signatures in a request's headers to the other host too. It returns a redirect like any other answer.
func New(c *http.Client) *http.Client {
	var own http.Client
	if c != nil {
		own = *c
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}
