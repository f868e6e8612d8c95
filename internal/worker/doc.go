// Package worker is the runtime of Consume and Messages. It holds messages, assigns them to workers, and settles
// them. It knows deliveries, not NATS.
//
// No callback, channel operation or I/O happens while the queue's lock is held; DESIGN.md has the lock order.
//
// The files have floors. A function calls only functions of its own file, and of files on lower floors, which are further up here:
//
//	failure history notify window
//	ackbatch queue
//	pool
//	keepalive
//	deliver settle
//	manual
//	handle
//	run
package worker
