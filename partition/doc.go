// Package partition keeps the messages of a key in order over any number of processes.
//
// A [Set] divides a stream into partitions by a token of its subjects. Each partition has a consumer. The processes that
// call [Set.Consume] are the members of the set. Each partition belongs to one member at a time. When members join or
// leave, the partitions are redistributed. There is no second stream, no lock service and no leader: members see each other
// in a key-value bucket, and each computes the same assignment.
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
// For each key, the handler of a message begins only after the handler of the previous message has succeeded, or after that
// message was given up (dead letter, Terminate), whichever members handle the messages. The key is the subject, unless
// [With] sets an OrderedBy. Delivery is at least once. An orderly hand-over of a partition from one member to another
// repeats no message that was handled and acknowledged. No key waits for a key of another partition.
//
// A member that crashes, or is cut off, counts as gone when the others have seen no heartbeat of it for [Config.TTL]. Its
// successor takes the pin from it and resets the consumer to its acknowledgement floor, so that older messages are
// delivered before newer ones, at once. The reset repeats the messages that were in flight. Unless the stream is a work queue, it
// also repeats messages that were acknowledged above the floor: at most MaxAckPending if no message fails, and more if a message
// that keeps failing holds the floor back. Delivery counts, and so MaxAttempts, begin at 1 again for these messages.
// Servers before 2.14 cannot reset a consumer. There the successor waits for AckWait before it begins.
//
// A member whose process was stopped for longer than the TTL has lost its partitions. The contexts of its handlers
// are cancelled with [ErrMembershipLost] as their cause, it begins no other message, and it joins again. A handler that ignores its
// context can then run at the same time as a handler of the successor. This is the only exception to the order.
//
// No clocks are compared. A member stops, by its own clock, 9/10 of the TTL after it sent its last successful heartbeat.
// Another member deletes its key when it has seen no newer heartbeat for the TTL.
//
// # Changing the number of partitions
//
// With another number of partitions, keys belong to other partitions. So stop the publishers, wait until [Set.Status] shows
// nothing pending, stop the members, call [Set.Resize], and open the set with the new number. Resize also changes the
// SubjectTransform of the stream. It fails while the set has a member or an unhandled message. [Open] refuses a number that
// differs from that of the set.
package partition
