// Package httpclient has the shared parts of the HTTP clients of the systems.
package httpclient

import "net/http"

// New returns a client like c, which may be nil for one with the default transport. It follows no redirect: the headers of a request have tokens
// and signatures, which package net/http would send to the other host too. An answer with a redirect is an answer like any other.
func New(c *http.Client) *http.Client {
	var own http.Client
	if c != nil {
		own = *c
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}
