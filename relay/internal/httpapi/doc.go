// Package httpapi is the relay's HTTP interface. openapi.json documents it, and a test holds the two together.
package httpapi
