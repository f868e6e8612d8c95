// Package jsstore keeps a broker's data in JetStream.
//
// There are three streams. The registry is a key-value bucket that every node
// watches into memory. The messages stream has one message per broadcast, on a
// subject made of channel and message ID; it is published with an expected last
// subject sequence of 0, so that the check for duplicates, the fan-out to every
// consumer and durability are one write. The jobs stream has one subject per
// job that ever changed its state, with one message on it: its record. A record
// is published with the sequence of the one it replaces.
//
// Every node reads the headers of all messages and all records into an index in
// memory, so that lists and counts cost what they show, and any node can serve
// any request. The index is a view: it may be behind, and then the write that
// was decided on it fails and is decided again.
//
// With an embedded server the store syncs what was written before it answers,
// once for all writes that wait for it; see package streams.
package jsstore
