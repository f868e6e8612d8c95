// Package journal stores a broker's data in JetStream. An answer that the broker gives is backed by data on disk.
//
// The messages stream has one message per broadcast, on a subject made of channel and message ID. The jobs stream has one subject
// for each job that ever changed its state, with one message on it: the job's record. A record is published with the sequence of
// the record that it replaces. Every node reads the headers of all messages and all records into an index in memory. The index is
// a view. It may be behind. Then a write that is based on it fails, and is decided again.
//
// A [Writer] stores a message once, even if the connection fails, and reports when it is on disk. [Link] and [Quorum] report when
// requests are futile.
//
// # Group sync
//
// A [Group] is the only part of the broker that accesses the files of an embedded server. It relies on these properties of nats-server
// 2.15.2, which are not documented promises:
//
//   - The blocks of a stream are the files N.blk in jetstream/$G/streams/STREAM/msgs of the store folder. The numbers rise and have gaps.
//   - A message is in the last block, by write(2), before it is acknowledged. It stays there as long as it is stored, or until the server
//     rewrites the block.
//   - A delete appends a tombstone to the last block. Deleting the last message of a block removes the file.
//
// So two syncs cover all acknowledged writes: one of the last block that was synced before and of all younger blocks, and one of
// the folder if its list has changed. broker/DESIGN.md, "Durability", lists the remaining gaps.
package journal
