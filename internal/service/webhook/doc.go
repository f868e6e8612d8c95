// Package webhook sends signed HTTP requests to addresses that users configure.
//
// Such a request must not reach private networks. So an address is checked when
// the connection is made, after its name was resolved, and redirects are not
// followed. The time and the size of an answer are bounded.
package webhook
