// Package natstest is the test harness of the project. It has four parts,
// which differ in what is real:
//
//   - [RunServer]: one nats-server with JetStream, in process, on loopback.
//   - [RunCluster]: three of them that form a cluster.
//   - [NewProxy]: a TCP proxy in front of a server that cuts, delays,
//     black-holes and records connections.
//   - [NewPeer]: a scripted peer in place of a server. It talks to nats.go
//     over [net.Pipe], so everything runs in a testing/synctest bubble, in
//     virtual time. Package model makes a JetStream server of it, and package
//     stage a place to test a client on that.
//
// Whatever a constructor that takes a [testing.TB] starts is stopped and
// waited for when the test ends.
package natstest
