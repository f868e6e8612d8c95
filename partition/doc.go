// Package partition keeps the messages of a key in order across processes.
//
// A [Set] divides a stream into partitions by a token of its subjects. Each partition has a consumer. The processes that call [Set.Consume] are the
// members of the set. Each partition belongs to one member at a time. When members join or leave, partitions move. There is no second stream, lock
// service or leader: one record in a key-value bucket names the members and the owners, and each member computes the same assignment from it.
//
// # Partitions
//
// The partition of a message is a token of its subject. Either the stream adds it:
//
//	transform := partition.Transform(64, "orders.*") // orders.42 is stored as orders.17.42
//	js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}, SubjectTransform: &transform})
//
// or the publisher does, with [Of], which is the server's hash.
//
//	set, err := partition.Open(ctx, js, "ORDERS", partition.Config{Name: "billing", Partitions: 64, Subject: "orders.{partition}.*"})
//	err = set.Consume(ctx, handle)
//
// # Guarantees
//
// For each key, the handler of a message starts only after the handler of the previous message has succeeded, or after that message was given up
// (dead letter, Terminate), whichever members handle the messages. A handler has succeeded when its message is acknowledged on the server. The key is
// the subject, unless [With] sets an OrderedBy. Delivery is at least once. No key waits for a key of another partition. A handler that NAKs its
// message releases its key. [Set.Resize] changes the number of partitions.
//
// A member that leaves gives up each partition as soon as its handlers have returned, and the next owner repeats no acknowledged message. If the next
// owner does not get all remaining messages within a second, it starts as after a crash. Reasons are a lost connection, handlers that ran for longer
// than DrainTimeout, messages that ManualAck left unsettled, and messages delayed by NakWithDelay.
//
// A member that crashes, or is cut off, is removed by another member that has seen no newer heartbeat of it for [Config.TTL]. The successor takes
// over the pin and resets the consumer to its acknowledgement floor, so that older messages are delivered before newer ones. The reset repeats the
// messages that were in flight. Unless the stream is a work queue, it also repeats acknowledged messages above the floor: at most MaxAckPending if no
// message fails, and more if a message that keeps failing holds the floor back. Delivery counts start at 1 again for these messages. An owner does
// the same when a delivery was lost with a connection, and when the consumer's server was restarted or has another leader. Servers before 2.14 cannot
// reset a consumer. There, the successor waits for AckWait and a second before it starts. In that time, two events can change the order of messages:
// a change of leader, and a process that was stopped for longer than the TTL and hands its messages back.
//
// A member whose process was stopped, or whose machine slept, for longer than 9/10 of the TTL has lost its membership. The contexts of its handlers
// are cancelled with the cause [ErrMembershipLost]. It joins again when they have returned. A handler that ignores its context can run at the same
// time as a handler of the successor. This is the only exception to the order. No clocks are compared.
//
// # Permissions
//
// [The page on permissions] lists the subjects that a member needs. A member requests them before it joins. If one gets no response, it owns nothing,
// logs a warning with the subject, and tries again. A user that may write to the bucket can stop the set, and can make two members handle a partition
// for up to the TTL. Nothing in the bucket acknowledges a message.
//
// [The page on permissions]: https://github.com/jetpull/jetpull/blob/main/docs/permissions.md#partitions
package partition
