// Package node is the broker as one process: an embedded NATS server or a
// connection to a cluster, the store, the dispatching and the HTTP listener.
package node
