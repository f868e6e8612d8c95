// Package streams writes to and reads from JetStream streams so that each answer can be believed: a [Writer] stores a
// message once, whatever becomes of the connection, and says when it is on disk; a [Reader] asks the leader where a replica
// may be behind; [Link] and [Quorum] know when there is no use in asking.
package streams
