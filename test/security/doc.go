// Package security acts as an attacker: its tests start the built command and probe every route of every OpenAPI document that it
// serves. A new route in a document is probed too, and its test fails until the table of routes says which roles may use it.
package security
