// Package natstest is the test harness of the project, as far as it needs no server:
//
//   - [NewPeer]: a scripted peer in place of a server. It talks to nats.go
//     over [net.Pipe], so everything runs in a testing/synctest bubble, in
//     virtual time. Package model makes a JetStream server of it, and package
//     stage a place to test a client on that.
//   - [NewProxy]: a TCP proxy in front of a server that cuts, delays,
//     black-holes and records connections.
//
// Package servertest of module test runs real servers.
//
// A constructor that takes a [testing.TB] registers a cleanup, which stops
// everything that it has started and waits for it.
package natstest
