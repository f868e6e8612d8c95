// Package httpapi is the relay's HTTP interface. openapi.json documents it. A test compares the document with the routes.
package httpapi
