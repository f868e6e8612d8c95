// Package jetpull pulls messages from NATS JetStream consumers, and calls a handler for each one.
//
// Create streams and consumers with the jetstream package of nats.go. Then bind to a pull consumer, and consume from it:
//
//	sub, err := jetpull.Subscribe(ctx, js, "ORDERS", "worker")
//	err = sub.Consume(ctx, func(ctx context.Context, m *jetpull.Msg) error {
//		return ship(ctx, m.Data()) // nil acknowledges the message; after an error it is retried
//	}, jetpull.Concurrency(8))
//
// A [Subscription] is a client's binding to one consumer. [Subscription.Consume] calls a handler for each message, [Subscription.Messages] iterates
// over messages, [Subscription.Fetch] gets up to n, and [Subscription.Next] gets one. A [Msg] is a [jetstream.Msg].
//
// # Guarantees
//
// No message is stranded. A message that arrives after its caller has returned goes to the next caller, or is handed back to the server at once.
// After Close, a cancelled context or a break, messages that were not handed over are available to other clients within a round trip to the
// consumer's server, without waiting for AckWait. A slow route between the client and the consumer's server is an exception: see the section on slow
// links.
//
// Every pull ends with its messages, a status of the server, or a deadline in the client. Within their deadline, calls retry after a lost
// connection, a change of leader, a restart of the server and status 503. They return by that deadline. If Next or Fetch waits for 300 ms or more and
// [Heartbeat] is not set, one lost pull or response costs at most half of the wait, and 3 s at most. Consume and Messages pull again within a second
// of a reconnect, a status 503 or 409, or a change of leader. If the server drops a pull without a status while nothing is delivered, they notice
// within 5 s. If several pulls in a row stay unanswered, up to 5 s pass before the next one.
//
// A call returns messages or an error, never both. A status of the server is never returned as a message, and a message is never taken for a status.
//
// # Order
//
// Next, Fetch, Messages, and Consume with one handler at a time return messages in the order of delivery: stream order, except for redelivered
// messages. Callers that wait at the same time are served in the order of their calls, whichever pull brings the message. [OrderedBy] keeps the order
// of messages with the same key within one Consume, and handles other keys in parallel.
//
// # Redelivery
//
// Delivery is at least once. The server redelivers a message that is not acknowledged within AckWait. Messages and Consume report in time that a
// message is in progress (see [KeepAlive]), so a slow handler causes no redelivery. When a connection or a server breaks, the messages in flight are
// redelivered. When a process ends, so are messages whose acknowledgement was not sent: with several handlers, an acknowledgement waits up to 200 µs
// for others.
//
// A Consume remembers the last thousand messages that it settled, and does not call a handler if the server redelivers one of them. It forgets them
// when the consumer is recreated, gets other priority groups or is reset (ResetConsumer of nats.go), or when it has settled none for AckWait and 5 s.
// A message that it holds when it notices a reset is handled once. It detects a reset when the consumer sequence of deliveries falls to half or
// less, and can miss one if other clients get most of the messages. A server that crashes soon after the consumer was created can lose half of all
// deliveries. This looks like a reset, and handlers get messages again. Other calls and processes do not share this memory.
//
// # MaxDeliver and ack policies
//
// Leave MaxDeliver unset and use [MaxAttempts], or set it much higher. Handing a message back uses up a delivery, so each stop of a worker that has
// read a message ahead counts. The server does not deliver a message again after the last delivery that MaxDeliver allows. When Consume ends, it
// handles the messages that it holds at their last delivery, within [DrainTimeout]. No client gets those that are in flight at that time, or that
// Messages, Next or Fetch hold when they end. If the stream of dead letters is down, last deliveries stop Consume (see [DeadLetter]). Package
// deadletters stores dead letters for messages that reached MaxDeliver.
//
// With ack policy all, one acknowledgement covers all messages before it. Consume refuses such a consumer; with Messages, Next and Fetch the caller
// decides what to acknowledge. With ack policy none, nothing can be handed back: a late message waits for the next call with the same options, and
// [Subscription.Close] loses messages. The pulls of a call that has ended stay open until they expire, 30 s at most, and count for MaxWaiting. A
// server that has crashed repeats deliveries that it has forgotten. With replay policy original, nats-server 2.15 pauses before a message. If all
// messages before it are acknowledged during the pause, the server forgets the message: it is not redelivered after AckWait or a delay.
//
// # Changes of the consumer
//
// The client notices edits of AckWait, BackOff, MaxDeliver, MaxAckPending, filters and limits of pulls within about half a second while messages
// arrive, and within 4 s while messages are held and none arrive. It reads the consumer for that; an idle client reads nothing. Edits of other fields
// do not affect the client. An edit restarts nothing, uses up no delivery, and applies to held messages too, as it does at the server. A server that
// has just started may not know its consumers yet, so a consumer that is not found counts as deleted only after 3 s.
//
//   - AckWait is lowered: messages that were held for longer than the new value can be redelivered, and handled twice, before the client notices.
//   - MaxDeliver is lowered: messages that wait at the server for a retry, and have reached the new value, are not delivered again. The server
//     reports only their sequences, in the advisory MAX_DELIVERIES: read them from the stream, or lower MaxDeliver when no message waits. With
//     [MaxAttempts], a message whose handler failed at what is now its last delivery is given up.
//   - A limit of pulls is lowered: the calls that share the refused pull end with [ErrLimitExceeded], and later calls keep within the limit.
//   - A new call would be refused on the edited consumer: Consume and Messages end with [ErrInvalidOption].
//   - The consumer is recreated, or gets other priority groups: Consume and Messages hand back messages that were not started. When the running
//     handlers have returned, they pull again, or end with [ErrInvalidOption].
//
// # Pins and permissions
//
// A pinned client gives up its pin when Consume, Messages or Close ends. The pin stays if the client dies, if it stops or loses its connection before
// it has received the message with its pin id, or if its server takes more than 150 ms to respond. A stand-by then waits for the consumer's priority
// timeout, 2 minutes by default. The server does not respond to a request without the needed permission: [Subscribe] and Info fail after half of
// their wait. If it refuses acknowledgements, Consume ends. If acknowledgements reach no server, [OnError] reports that when the first message is
// redelivered.
//
// # Slow links
//
// If the client is on a leaf node, or connected to another server than the consumer's, messages can still be on their way when a call ends. NATS has
// no request that ends a pull. If the round trip takes more than 5 ms, a call that ends first receives what its pulls bring, for up to a second, and
// hands it back. If the pulls are filled in that time, nothing waits. The pulls of Consume and Messages are small enough for that, if messages keep
// arriving at 30 per second or more, and no larger backlog was delivered in the seconds before. Otherwise the messages that the consumer's server
// sends within a round trip wait for AckWait: 60, at 200 messages per second and a round trip of 300 ms. A link that stalls, even for longer than a
// pull lives, costs no delivery, unless Close is called during the stall, or a call ended less than a second before it, so that the server learns of
// that late. If a call ends during the stall, and the server is so busy that it handles the call's pull after two later requests, messages wait for
// AckWait.
//
// # Goroutines and memory
//
// A Subscription owns one goroutine that watches the connection. At times it owns one that reads while no caller does, one for each inbox that is
// drained, one that reads the configuration, and one for callbacks. Close waits for them. Consume owns one goroutine, or up to [Concurrency] when
// messages arrive, and one for each message that [OrderedBy] retries in place or that waits for [Limited]. When it returns they have ended, except
// for handlers that ignore their context (see [DrainTimeout] and [HandlerTimeout]). No lock is held when a handler or callback is called. Without
// traffic, a Subscription with a Consume takes about 22 kB of heap, if MaxAckPending is 1,000. 9 kB of it are a channel that can hold all messages
// that open pulls may bring. With a larger MaxAckPending the channel takes 16 kB at most. It does not grow if MaxAckPending is raised later: to use
// a slow link in full, subscribe again.
//
// # Options
//
// Each call has a type for its options, such as [FetchOption]. An option that a call cannot use does not compile. Options of [Subscribe] are the
// defaults of all calls that can use them. Without a [Logger], each failure of a handler writes a line to slog's default logger. The protocol is that
// of ADR-13 (pull subscribe) and ADR-42 (priority groups) of NATS, as implemented in nats-server 2.15. Servers before 2.11 are refused.
package jetpull
