// Package sim is the simulation of the relay's workers: its tests run them, with their store, against an embedded server
// in virtual time, each schedule in a testing/synctest bubble of its own.
//
// A seed draws receivers, what senders hand in and how often, the latency and the answer of each request, which requests
// and answers get lost, and when which of one to three processes stops, dies, or dies at a named point between two
// writes. When all that is over, everything is worked off, and package history says what is wrong with the run.
//
// A seed that fails is printed with the command that replays it. It draws the same plan, requests and answers; the Go
// scheduler may still take events of one instant in another order.
package sim
