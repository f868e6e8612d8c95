// Package jetpull turns the messages of NATS JetStream pull consumers into
// finished work.
package jetpull
