// Package model is a model of JetStream's pull consumers on top of the
// scripted peer of natstest. It follows nats-server 2.15 decision by decision:
// which pull gets which message, which status ends it and when, what is
// redelivered, what survives a change of leader. A client that runs against it
// in a testing/synctest bubble sees what it would see of a server, in virtual
// time, under latencies, lost frames and outages that are drawn from a seed.
//
// The differential test of the package runs the same scripts against the model
// and against a real server and compares every frame and the consumer's state
// after each step.
//
// # Modelled
//
// Streams that keep everything; pull consumers with their waiting queue and
// its limits, one-shot and no-wait pulls, heartbeats, byte limits, ack
// policies, ack wait and backoff, replay at original speed, delays of naks, max deliver, max ack
// pending, priority groups of all three policies with pins, pause; replication
// (deliveries and double acks wait for a quorum, statuses do not), change of
// leader, shutdown, crash with the loss of what was not yet flushed, update, deletion.
//
// # Not modelled
//
// Push consumers, retention other than limits, deletion of messages, rate
// limits, headers only, flow control, and start
// policies other than all, new and by sequence. A consumer that asks for one
// of them is refused.
package model
