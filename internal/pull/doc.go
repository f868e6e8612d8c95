// Package pull is the pull engine: a state machine that turns the demands of callers into pull requests, and
// frames of the server into messages for callers.
//
// The driver (package transport) brings events and carries out effects. The engine reads no clock, sends
// nothing, waits for nothing and holds no lock: it gets the time with each event, and its effects name inboxes,
// not subscriptions. So each interleaving can be written down as a table, and random ones can be drawn.
//
// The invariants of the engine:
//   - A pull has an inbox to itself while it is open, so each message and each status belongs to one pull.
//   - Demand is covered once: a pull is sent for demands that no open pull covers. Messages go to the demands of a
//     share group in the order in which those were posted, whichever pull brought them.
//   - Every pull ends: filled, by a status and the messages that it counts, or by
//     a deadline of the engine's own. An inbox is used again only when nothing more
//     can arrive on it; otherwise it is drained, and what arrives until then is
//     delivered like any other message.
package pull
