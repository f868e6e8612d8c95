// Package work has the relay's workers, one file each: FromSender, ToReceiver, FromReceiverAsync, ToSender,
// FailedMessages and MessageTTL. Each is a Consume of the jetpull client; what has one partition is pinned.
package work
