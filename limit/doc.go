// Package limit limits how many handlers of a key begin in a window of time, and how many run at a time, over any number of processes.
//
//	l, err := limit.Open(ctx, kv, "bank", limit.Config{Rate: 10, Window: time.Second, Concurrent: 2})
//	release, err := l.Acquire(ctx, customer) // waits
//	defer release()
//
// The processes share a key-value bucket. There is no server beside NATS, and no leader: one record for each key says what each process holds, and
// only compare-and-swap changes it. A process takes a slice of a window with one write, so a Rate of 10,000 a second costs about 20 writes a
// second.
//
// # Guarantees
//
// For each key, no window of length Window, wherever it begins, has more than Rate begins of handlers, and at most Concurrent handlers run. This
// holds over all processes, also when some are killed and others take over, while the bucket cannot be reached, and after a machine has slept.
//
// There is one exception: a process that is stopped between Acquire and the handler, or in a handler that ignores the end of its context
// ([Limiter.Context]), and that has written nothing for longer than [Config.TTL] when it goes on.
//
// No clocks are compared. A record has ages, which each process measures with its monotonic clock, and which are never above the true ones. So a
// clock that is wrong, or is set, cannot exceed a limit.
//
// # Costs of a crash
//
// A process that is killed keeps its slots for the TTL. Begins that it had taken, and not reported as made or given back, count for the TTL and a
// window. It has taken an eighth of the Rate at most if up to four processes use the key, and one begin if the Rate is small. [Limiter.Close] gives
// back all.
//
// A process that starts does not know how old the last record of a key is. It waits up to a window longer than it has to if that record was full,
// and no process has used the key since. A Rate is not used up to the last begin: under load, more than 9/10 of it are.
//
// # Order
//
// The process that has waited longest comes first. In a process, it is the caller that has waited longest.
//
// # The bucket
//
// All limits may share a bucket with one copy or three, with file storage. A process needs the permissions to read the bucket's status, to get, put
// and watch keys. A client that may write to the bucket can exceed a limit, or stop a key. A record that cannot be read counts as full: its
// handlers wait for the TTL and a window. A record that is deleted counts as empty for processes that do not use the key at that time.
//
// If the bucket cannot be reached, handlers begin that this process has taken before, for less than the TTL, and others wait.
package limit
