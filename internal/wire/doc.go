// Package wire reads and writes what a pull client and nats-server say to each other: the JSON of a pull
// request, the acknowledgement payloads, the ack subject that every delivered message carries as its reply,
// the header of a status frame, and the API subjects.
//
// Everything here is a pure function of its arguments, safe for concurrent use. Parsers return substrings of what they
// are given and never panic, whatever the peer sent.
package wire
