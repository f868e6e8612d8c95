// Package httpserve is what the HTTP interfaces of the systems have in common: routes whose refusals have the form of a
// contract, tokens, JSON, a listener that starts and stops in good order.
package httpserve
