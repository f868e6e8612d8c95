// Package journal stores a broker's data in JetStream. An answer that the broker gives is backed by data on disk.
//
// The messages stream has one message per broadcast, on a subject made of channel and message ID. The jobs stream has one subject
// for each job that ever changed its state, with one message on it: the job's record. A record is published with the sequence of
// the record that it replaces. Every node reads the headers of all messages and all records into an index in memory. The index is
// a view. It may be behind. Then a write that is based on it fails, and is decided again.
//
// A [Writer] stores a message once, even if the connection fails, and reports when it is on disk. [Link] and [Quorum] report when
// requests are futile.
package journal
