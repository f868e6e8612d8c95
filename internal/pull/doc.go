// Package pull is the pull engine: a state machine that turns the demands of callers into pull requests, and
// frames of the server into messages for callers.
//
// The driver (package transport) brings events and carries out effects. The engine reads no clock, sends nothing, waits for
// nothing and holds no lock: it gets the time with each event, and its effects name inboxes, not subscriptions. So each
// interleaving can be written down as a table, and random ones can be drawn. DESIGN.md lists the engine's invariants.
package pull
