// Package jsstream creates, reads and follows JetStream streams. It never reports a message as missing that may exist.
//
// A read has three answers: the message, [stored.ErrNotFound] if the stream has none, and [stored.ErrUnavailable] if that is not known
// now. If a replica may be behind, a [Reader] asks the leader. [Follow] passes on the stored messages in order, and a [Progress] says how
// far it has come.
package jsstream
