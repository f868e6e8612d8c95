// Package sim is the simulation of the client: its tests run the root package
// against the model of a JetStream consumer, each schedule in a
// testing/synctest bubble of its own.
//
// A seed draws a plan: the consumer's configuration, what is published, one to
// three processes that come and go and use every call of the client, the
// latencies, and the faults. The link behind the server of the clients may stall, so that data
// is late and nothing is closed. The consumer may be edited, reset, deleted and recreated, and may
// replay at original speed. A message that
// handlers give up may become a dead letter, and some dead letters get lost. When the
// faults are over, all remaining messages are handled in a calm phase. Then the checks
// compare the records of the processes with the model's history: nothing lost, nothing
// stranded, no duplicate without a cause, order by key, one dead letter for each message
// that was given up, streams that end with their consumer or wait for it, calls that end
// in time, no hot loop, no goroutine left.
//
// Schedules run in worker processes, one for each CPU, because nats.go keeps
// timers in a pool of the whole process, which two bubbles at a time cannot
// share. It also lets the simulation report a schedule that ends its process
// or never ends.
//
// A seed that fails prints its plan, what is wrong, the history of the messages
// concerned, and the command that replays it. A replay draws the same plan and
// the same faults; the Go scheduler may still take events of one instant in
// another order, so -sim.repeat runs a seed several times.
package sim
