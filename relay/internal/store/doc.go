// Package store keeps the relay's state in JetStream: a record of each message, the queues between the workers, the
// registry of receivers and senders, and the list of failed messages.
package store
