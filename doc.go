// Package jetpull turns the messages of NATS JetStream pull consumers into
// finished work.
//
// A [Subscription] is a client's hold on one pull consumer. [Subscription.Next]
// gets one message, [Subscription.Fetch] up to n, [Subscription.Messages] yields
// them as they come, and [Subscription.Consume] runs a handler for each.
// Streams and consumers are made with the jetstream package of nats.go; a [Msg] is
// a [jetstream.Msg], so a handler written for that works here.
//
// # What holds
//
// Nothing is stranded. A message that arrives for a caller that has gone goes to
// the next caller, or back to the server at once. After Close, a cancelled
// context or a break, what was not handed over is there for the next client within
// a round trip, not after AckWait. With ack policy none there is no way back: a
// late message waits for the next call, and Close counts what it drops.
//
// Every pull ends: by its messages, by the server's word, or by a deadline of the
// client's own where the server ends it without one. Calls retry within their
// deadline what can be retried - a lost connection, a change of leader, a server
// that restarts, status 503 - and return by it. Consume and Messages pull again
// within a second of it being possible, also where the server says nothing at all
// because its queue of waiting pulls is full, or where one answer after another was
// lost. A server that is late with its answers is asked for fewer heartbeats after
// that, and a pull that it drops without a word can be missed as late as after 10 s.
//
// Messages and an error are never returned together. A status frame is never
// handed over as a message, and a message never taken for a status.
//
// # Order
//
// Next, Fetch, Messages, and Consume with one handler at a time hand messages over
// in the order in which the server delivers them: stream order, but for those
// that are delivered again. Callers that wait at the same time are served in the
// order in which they came, whichever pull brought the message. [OrderedBy] keeps
// the order of messages with the same key and handles others in parallel.
//
// # Redelivery
//
// Delivery is at least once. The server delivers a message again that is not
// acknowledged within AckWait; Messages and Consume tell it in time that a
// message is still in progress (see [KeepAlive]), so that a slow handler is no
// reason. What remains are the messages in flight when a connection or a server
// breaks, and those whose acknowledgement had not left yet when the client did: it
// waits for others for 200 µs with more than one handler at a time, and for 20 ms
// with ack policy all. A message that comes again while it is held, or after its
// handler was done with it, is not handled again by the same Consume.
//
// A message that is handed back counts as delivered, and so does each stop of a
// worker that had read it ahead. Consume handles what it has at the last delivery
// that MaxDeliver allows before it returns, within [DrainTimeout]; Messages, Next
// and Fetch cannot, and what a call that was cancelled was about to get then is
// lost. Give consumers a MaxDeliver well over the failures that a message is
// allowed, or none and [MaxAttempts].
//
// With ack policy all an acknowledgement covers all messages before it, whoever
// got them. Use one Consume, and nothing beside it, on such a consumer. After a
// broken connection or a client that died, Consume handles nothing until the
// messages that went there have come again, after AckWait, so that it does not
// cover them. The other calls leave that to the caller who acknowledges.
//
// # Goroutines
//
// A Subscription owns one goroutine that watches the connection, and at times one
// that reads what arrives while no caller waits, one that drains an inbox, and
// one for callbacks; Close waits for them. Messages and Consume own one that looks
// after held messages, and Consume one for each handler at a time; they have ended
// when the call returns, but for handlers that ignore their context (see
// [DrainTimeout]). Callbacks and handlers are never called with a lock held.
//
// # Options
//
// Options given to [Subscribe] are the defaults of all calls; given to a call they
// hold for that call. An option that a call cannot use is an error, never ignored.
//
// The protocol is that of ADR-13 (pull subscribe) and ADR-42 (priority groups) of
// NATS, as nats-server 2.15 speaks it.
package jetpull
