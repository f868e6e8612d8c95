// Package pull is the pull engine: a state machine that turns the demands of callers into pull requests, and
// frames of the server into messages for callers.
//
// The driver (package transport) delivers events and carries out effects. The engine reads no clock, sends nothing, waits for
// nothing and holds no lock: it gets the time with each event, and its effects name inboxes, not subscriptions. So tests can
// run any interleaving from a table, or draw random ones. DESIGN.md lists the engine's invariants.
//
// The files have floors. A function calls only functions of its own file, and of files on lower floors, which are further up here:
//
//	wait
//	effect pull terms
//	demand inbox standing
//	engine share
//	account plan
//	cover
//	calls clock frames
//
// A method is in the file of its purpose: a method that decides about pulls is in plan.go, and one that fills in a pull in cover.go.
package pull
