// Package model is a model of JetStream's pull consumers on top of the
// scripted peer of natstest. It follows each decision of nats-server 2.15:
// which pull gets which message, which status ends a pull and when, which
// messages are redelivered, and what survives a change of leader. In a
// testing/synctest bubble, a client sees what it would see of a server, in
// virtual time, with latencies, lost frames and outages drawn from a seed.
//
// A differential test runs the same scripts against the model and against a
// real server. It compares every frame, and the consumer's state after each
// step.
//
// # Modelled
//
// Streams without limits; pull consumers with their waiting queue and its
// limits, one-shot and no-wait pulls, heartbeats, byte limits, ack policies,
// ack wait and backoff, replay at original speed, delays of naks, max deliver,
// max ack pending, priority groups of all three policies with pins, and pause;
// replication (deliveries and double acks wait for a quorum, statuses do not),
// change of leader, shutdown, crash with loss of unflushed state, update, deletion.
//
// # Not modelled
//
// Push consumers, retention other than limits, deletion of messages, rate
// limits, headers only, flow control, and start policies other than all, new
// and by sequence. Such a configuration of a consumer is an error.
package model
