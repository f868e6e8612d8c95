// Package security acts as an attacker: its tests start the built command and probe every route of every OpenAPI document that it
// serves. A route that is added to a document is probed at once, and fails until the table of routes says who may use it.
package security
