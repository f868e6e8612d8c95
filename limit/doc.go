// Package limit limits how many handlers of a key start in a period of time, and how many run at a time, across processes.
//
//	l, err := limit.Open(ctx, kv, "bank", limit.Config{Rate: 10, Window: time.Second, Concurrent: 2})
//	release, err := l.Acquire(ctx, customer) // waits
//	defer release()
//
// The processes share a key-value bucket. There is no server besides NATS, and no leader: one record per key says what each process holds, and only
// compare-and-swap changes it. A process reserves a part of a window with one write, so a Rate of 10,000 a second costs about 20 writes a second.
//
// # Guarantees
//
// For each key, at most Rate handlers start in any period of length Window, and at most Concurrent handlers run at a time. This holds across all
// processes, even when some are killed and others take over, while the bucket cannot be reached, and after a machine has slept.
//
// There are two exceptions. A start counts when Acquire returns: if the process is stopped between Acquire and the handler, for example with its
// machine, the handler starts later than the limit assumes. And a process that is stopped in a handler, and continues after it has written nothing
// for longer than [Config.TTL], no longer counts: the handler must observe the end of its context ([Limiter.Context]).
//
// No clocks are compared. A record contains ages, which each process measures with its monotonic clock, and which are never above the true ones. A
// wrong clock, or a clock that is set, therefore cannot cause a limit to be exceeded.
//
// # Costs of a crash
//
// A process that is killed keeps its slots for the TTL. Starts that it had reserved, and neither reported as made nor given back, count for the TTL
// and a window. They are at most an eighth of the Rate if up to four processes use the key, and one start if the Rate is small. [Limiter.Close] gives
// back everything.
//
// A process that starts does not know how old the last record of a key is. If that record was full, and no process has used the key since, it waits
// up to a window longer than necessary. Under load, more than 9/10 of a Rate can be used.
//
// # Order
//
// The process that has waited longest is served first, and within a process the caller that has waited longest.
//
// # The bucket
//
// Limits may share a bucket with one or three replicas, with file storage. A process needs permissions to read the bucket's status, and to get, put
// and watch keys. A client that may write to the bucket can exceed a limit, or block a key. A record that cannot be read counts as full: its handlers
// wait for the TTL and a window. A deleted record counts as empty for processes that do not use the key at that time.
//
// While the bucket cannot be reached, a process starts handlers that it has already reserved, for less than the TTL. All others wait.
package limit
