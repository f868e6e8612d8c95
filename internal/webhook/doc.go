// Package webhook sends signed HTTP requests to addresses that users chose.
//
// Such a request must not reach what only this machine can reach, so addresses
// are checked after the name was resolved, at the moment of the dial; redirects
// are not followed; and neither the time nor the size of an answer is left to
// the other side.
package webhook
