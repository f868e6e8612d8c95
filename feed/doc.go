// Package feed processes work that fans out and joins again, on a relational database.
//
// A [Partition] contains [Item]s that belong together. Each item is at a gate, which is a number. The gate of the partition is the lowest one with an
// item that is not Complete. A [Watcher] leases partitions and calls a [Processor] for the items at the partition's gate. When all of them are
// Complete, the partition moves to the next gate that has items. An item is therefore processed only after all items at lower gates are Complete.
// Other programs may read and write the tables of partitions and items (see [Store]).
//
// A watcher works in passes over a partition, oldest item first. If an item must be retried or becomes due after the pass has gone past it, the next
// pass processes it. So failing items do not delay others.
//
// # Guarantees
//
// An item is processed at least once, and its result is written once. Each write names the lease's owner and epoch and the item's version, so a
// watcher that has lost its lease changes nothing, however long it was stopped. A handler is repeated only for an item that was started and not yet
// saved when a process died or lost its lease: at most [Concurrency] items. The database's clock alone decides when a lease ends.
//
// No handler starts at a gate while an item at a lower gate is not Complete. Inserting, sealing, closing and advancing lock the
// row of the partition, so no insert can miss a gate change. An insert below the gate is refused.
//
// Polling finds all work. A notification only makes that sooner.
package feed
