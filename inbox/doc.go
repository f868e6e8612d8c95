// Package inbox makes a message take effect once on a SQL database, although messages are delivered at least once.
//
// [Handler] calls a function in a transaction that also inserts the identity of the message: its stream, consumer, sequence and time of
// storage. The message is acknowledged after the commit. If it is delivered again, its identity exists, and it is acknowledged without
// calling the function. If the process ends, or a connection is lost, even during the commit, either both are in the database or neither
// is. Two consumers of a stream, and two streams of the same name that existed one after another, have separate identities.
//
// [Migrate] creates the tables jetpull_inbox and jetpull_inbox_floors. The package needs no driver: it asks the database which kind it is.
// It is tested on PostgreSQL 15 and SQLite 3. Most of its tests were also run by hand on MariaDB 10.11. MySQL itself gets the same
// statements, and was not tested.
//
// # The function
//
// The function must have all its effects through its transaction. Other effects can happen again. It returns every error of its statements:
// after some, such as a deadlock on MySQL, the database has ended the transaction, and later statements would be committed on their own. It
// neither ends the transaction nor settles the message. Its errors are those of a [jetpull.Handler]: after any of them, including
// [jetpull.Retry] and [jetpull.Terminate], and after a panic, the transaction is rolled back.
//
// [BatchHandler] is for a function that loads many messages with few statements. Errors of the database are failed attempts too, so a long
// outage can use up [jetpull.MaxAttempts].
//
// # Two deliveries at the same time
//
// On PostgreSQL and MySQL, the second delivery waits for the transaction of the first. PostgreSQL ends the transaction of a process that
// has lost its connection only when it notices that: set tcp_keepalives_idle, or client_connection_check_interval. On SQLite, one
// transaction writes at a time: set busy_timeout and call SetMaxOpenConns(1), or messages that find the database busy are retried. With
// SetMaxOpenConns(1), a function that uses the database outside of its transaction waits until its context ends.
//
// # Rows are deleted
//
// The identity of a message stays until the consumer's acknowledgement floor has been at or above its sequence for five minutes by the
// server's clock (see [Keep]). Then rows are deleted, in steps of at most 2,000, at each thousandth delivery of the consumer. No row is
// deleted while the consumer's info cannot be read. For a recreated consumer, this time starts again. A failure is logged and fails no
// message. The rows of a deleted consumer stay, and can be deleted by hand.
//
// A process that was stopped, or whose link has stalled, can hold a message that another process has handled for longer than the message's
// row stays. Rows are deleted up to a sequence that is stored before they are deleted. For a message at or below it, the consumer's floor
// decides: messages that were acknowledged are not handled again.
//
// # Limits
//
//   - If the consumer is reset, or recreated with its name, acknowledged messages are delivered again. Those whose rows exist are not
//     handled again, and those whose rows were deleted are.
//   - After a reset to sequence 1, nats-server 2.15 can continue to report the old acknowledgement floor, if it was writing the consumer's
//     state at that moment. Messages whose rows were deleted are then not handled again. Reset to a later sequence, or recreate the
//     consumer.
//   - A server that crashes or loses power, and forgets the acknowledgements of the last minutes, repeats no effect while that time is
//     shorter than [Keep].
//   - A database that forgets commits, with synchronous_commit=off, or after a fail-over to a copy that is behind, forgets the effects of
//     messages that are acknowledged.
//   - A message that was published twice is two messages, unless its publisher sets Nats-Msg-Id. So is a dead letter that is published
//     again.
package inbox
