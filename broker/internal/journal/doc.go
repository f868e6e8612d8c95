// Package journal keeps a broker's data in JetStream, so that each answer can be believed.
//
// The messages stream has one message per broadcast, on a subject made of channel and message ID. The jobs stream has one subject per
// job that ever changed its state, with one message on it: its record. A record is published with the sequence of the one it replaces.
// Every node reads the headers of all messages and all records into an index in memory, which is a view: it may be behind, and then the
// write that was decided on it fails and is decided again.
//
// A [Writer] stores a message once, whatever becomes of the connection, and says when it is on disk; [Link] and [Quorum] know when there is no use
// in asking.
//
// # Group sync
//
// Group sync brings to the disk what an embedded server has acknowledged. It is all of the broker that reaches around the server, into its
// files. JetStream acknowledges a message when it has written it to a block file, and syncs that file every two minutes by default, or for every
// single message. A [Group] syncs the block files of one stream itself, once for all writers that wait. It relies on this, which nats-server
// 2.15.2 does and does not promise:
//
//   - The blocks of a stream are the files N.blk in jetstream/$G/streams/STREAM/msgs of the store folder. The numbers rise and have gaps.
//   - A message is in the last block, by write(2), before it is acknowledged, and stays there as long as it is stored, or until the server
//     rewrites the block.
//   - A delete appends a tombstone to the last block. The last message of a block takes the file with it.
//
// So a sync of the last block that was synced before and of those begun since covers all that was acknowledged; and a sync of the folder, when its
// list has changed, covers the files' names. broker/DESIGN.md, "Durability", says what that leaves.
//
// A sync that failed is the last one: the system may have dropped what it could not write, and call the next sync of the file a success. From then
// on all who ask get that [Failure].
package journal
