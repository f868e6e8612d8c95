// Package natstest is the part of the project's test harness that needs no server:
//
//   - [NewPeer]: a scripted peer in place of a server. It communicates with
//     nats.go over [net.Pipe], so everything can run in a testing/synctest
//     bubble, in virtual time. Package model implements a JetStream server on
//     it, and package stage tests clients on that server.
//   - [NewProxy]: a TCP proxy in front of a server that cuts, refuses, delays,
//     stalls and black-holes connections.
//
// Package servertest of module test runs real servers.
//
// A constructor with a [testing.TB] registers a cleanup that stops everything
// it started, and waits for the end.
package natstest
