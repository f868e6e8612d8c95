// Package feed runs work that fans out and in again, on a relational database.
//
// A [Partition] has [Item]s, each at a gate, a number. A [Watcher] leases partitions and calls a [Processor] for
// the items at the gate of each, in passes, oldest first: an item that is retried, or whose time comes, after the pass has gone
// by is processed in the next one, so that what fails keeps no other item waiting. When none is left at that gate the
// partition goes on to the next gate that has items: what is at a gate is processed only after everything below it is
// Complete. All state is in two tables, partitions and items, which other programs may read and write (see [Store]).
//
// # What holds
//
// An item is processed at least once, and its end is written once: a write carries the lease's owner and epoch and the
// item's version, so that a watcher that lost its lease, however long it was stopped, changes nothing. Handlers are
// repeated only for items that were begun and not yet saved when a process died or lost its lease, [Concurrency] at
// most. A lease's end is judged by the database's clock alone.
//
// No handler starts at a gate while an item at the one before it is not Complete. Inserting, sealing, closing and
// advancing lock the row of the partition, so no insert slips past a gate, and one below the gate is refused.
//
// The polls are what finds work; a wake-up only makes that sooner.
package feed
