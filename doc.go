// Package jetpull turns the messages of NATS JetStream pull consumers into finished work.
//
// A [Subscription] is a client's hold on one pull consumer. [Subscription.Next] gets one message,
// [Subscription.Fetch] up to n, [Subscription.Messages] yields them as they come, and [Subscription.Consume] runs
// a handler for each. Streams and consumers are made with the jetstream package of nats.go; a [Msg] is a
// [jetstream.Msg].
//
// # What holds
//
// Nothing is stranded. A message that arrives for a caller that has gone goes to the next caller, or is handed
// back to the server at once. After Close, a cancelled context or a break, what was not handed over is there for
// the next client within a round trip, not after AckWait.
//
// Every pull ends: by its messages, by a status of the server, or by a deadline of the client's own. Calls retry
// within their deadline what can be retried - a lost connection, a change of leader, a server that restarts,
// status 503 - and return by it. Next and Fetch lose at most half of their wait, and 3 s at most, to one lost pull
// or answer, where they wait for 300 ms or more and [Heartbeat] is not set. Consume and Messages pull again within
// a second of a reconnect, a status 503 or 409 or a change of leader. Where the server drops a pull without an answer
// while nothing is delivered, they notice within 5 s; where pull after pull stays unanswered up to 5 s pass before
// the next one.
//
// Messages and an error are never returned together. A status frame is never handed over as a message, and a
// message never taken for a status.
//
// # Order
//
// Next, Fetch, Messages, and Consume with one handler at a time hand messages over in the order in which the server
// delivers them: stream order, but for redelivered ones. Callers that wait at the same time are served in the order
// in which they came, whichever pull brought the message. [OrderedBy] keeps the order of messages with the same key
// within one Consume and handles others in parallel. A message whose handler failed is then retried in place:
// [Msg.Delivered] does not grow on such retries, a handler that NAKs its message itself releases its key, and a key
// that keeps failing can fill the window, which stops pulling.
//
// # Redelivery
//
// Delivery is at least once. The server redelivers a message that is not acknowledged within AckWait; Messages and
// Consume report in time that a message is in progress (see [KeepAlive]), so that a slow handler is no reason.
// The messages in flight when a connection or a server breaks are redelivered, and so are those whose
// acknowledgement had not left when the process ended: with several handlers it waits up to 200 µs for others. A
// Consume remembers the last thousand messages that it settled, until the consumer is recreated or it has settled
// none for AckWait and 5 s, and does not handle a redelivery of those again, nor what a reset of the consumer
// (nats.go's ResetConsumer) meanwhile brings again; other calls and processes do not know of them. [ConfirmAcks] waits until its
// context ends where the consumer was deleted: the server answers 503, as where the consumer has no leader at present.
//
// A message that is handed back counts as delivered, and so does each stop of a worker that had read it ahead.
// Consume handles within [DrainTimeout] what it holds at the last delivery that MaxDeliver allows; what is on its way
// at its last delivery when Consume ends, or held by Messages, Next and Fetch when they end, is lost to other
// clients. A stream of dead letters that is down stops Consume at last deliveries (see [DeadLetter]). Give consumers
// a MaxDeliver well over the failures that a message is allowed, or none and [MaxAttempts].
//
// With ack policy all, one acknowledgement covers all messages before it. Consume refuses such a consumer; Messages,
// Next and Fetch leave it to the caller what to acknowledge. With ack policy none a server that crashed delivers again
// what it has forgotten, handled or not. Nothing can be handed back: a late message waits for the next call with the same
// options, and Close counts in Stats.Dropped what was read ahead or was on the wire, which is lost. The pulls of a call
// that has ended stay open until they expire, 30 s at most, and count for MaxWaiting.
//
// # Changes of the consumer
//
// A change of the consumer's configuration is seen when the consumer was recreated or did not answer, when it refuses
// a pull for a limit, or when the connection was lost; another change is seen at the next of these. Where a limit is lower
// than it was, the calls that share the refused pull end with [ErrLimitExceeded], and later ones keep within the limit.
// Consume and Messages then hand back what was not started, and pull again when the handlers that run have returned, or end
// with [ErrInvalidOption] where a new call would. A pinned client gives up its pin when Consume,
// Messages or Close ends. A client that dies keeps its pin, and so does one that stops before it has received the message
// that brings its pin id: a stand-by then waits for the consumer's priority timeout, 2 minutes by default.
//
// The server does not answer a request that a missing permission forbids, so [Subscribe] and Info return that error when
// their wait is over.
//
// # Goroutines and memory
//
// A Subscription owns one goroutine that watches the connection, and at times one that reads while no caller does,
// one for each inbox that is drained, one that reads the configuration and one for callbacks; Close waits for them.
// Consume owns one for each of its [Concurrency]; they have ended when it returns, but for handlers
// that ignore their context (see [DrainTimeout]). Such a handler can run for longer than [HandlerTimeout] too: its message
// fails when it returns. Handlers and callbacks are never called with a lock held. Without traffic a Subscription with a
// Consume takes about 32 kB of heap, 16 kB of it for the channel that has room for all that may be on order.
//
// # Options
//
// Options given to [Subscribe] are the defaults of all calls; given to a call they hold for that call. An option that
// a call cannot use is an error where it is given to that call, and left out where it is a default. [OnPin] and [OnUnpin] can
// only be given to Subscribe. Without a [Logger] each failure of a handler writes a line to slog's default logger.
//
// The protocol is that of ADR-13 (pull subscribe) and ADR-42 (priority groups) of NATS, as nats-server 2.15 speaks it.
// Servers before 2.11 are refused.
package jetpull
