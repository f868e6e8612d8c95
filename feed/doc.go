// Package feed runs work that fans out and joins again, on a relational database.
//
// A [Partition] has [Item]s. Each item is at a gate, which is a number. The partition has a gate too: the lowest one with an
// item that is not Complete. A [Watcher] leases partitions and calls a [Processor] for the items at the partition's gate. When
// all of them are Complete, the partition moves to the next gate that has items. So an item is processed only after all items
// at lower gates are Complete. All state is in two tables, partitions and items, which other programs may read and write (see
// [Store]).
//
// A watcher works in passes over a partition, oldest item first. If an item has to be retried, or becomes due, after the pass has
// gone past it, the next pass processes it. So failing items do not delay others.
//
// # Guarantees
//
// An item is processed at least once, and its result is written once. Each write carries the lease's owner and epoch and the
// item's version, so a watcher that has lost its lease changes nothing, however long it was stopped. A handler is
// repeated only for an item that was begun and not yet saved when a process died or lost its lease. These are at most
// [Concurrency] items. The end of a lease is decided by the database's clock alone.
//
// No handler starts at a gate while an item at a lower gate is not Complete. Inserting, sealing, closing and
// advancing lock the row of the partition, so no insert can miss a gate change. An insert below the gate is refused.
//
// Polling finds all work. A wake-up only makes that sooner.
package feed
