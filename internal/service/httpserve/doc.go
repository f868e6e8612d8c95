// Package httpserve has the shared parts of the systems' HTTP interfaces: routes with errors in the form of each system's
// contract, tokens, JSON, and a listener that starts and shuts down cleanly.
package httpserve
