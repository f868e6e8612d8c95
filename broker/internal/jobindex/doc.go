// Package jobindex is what a node knows in memory of messages, jobs and schedules. It knows no NATS: the store tells it
// what the streams have, and asks it for the jobs to take, for lists and for counts.
//
// An [Index] has the messages of each channel (index.go), what is known of the jobs of each consumer (consumerindex.go):
// those that can be taken (queue.go), those that are settled (settled.go) and how much there is to do (backlog.go); and
// which messages are for whom (eventkinds.go). [Schedules] has the scheduled messages. Their lists are ordered.go's.
package jobindex
