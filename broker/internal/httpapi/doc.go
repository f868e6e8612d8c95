// Package httpapi is the HTTP contract of the broker on the standard library's
// ServeMux: routes, checks in their order, and the texts and codes of answers.
// Its document is openapi.json, which a test holds against the routes and
// against what they answer.
package httpapi
