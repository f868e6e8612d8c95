// Package wire reads and writes the protocol between a pull client and nats-server: the JSON of a pull request, the
// acknowledgement payloads, the ack subject that every delivered message carries as its reply, the header of a status
// frame, and the API subjects.
//
// All functions are pure and safe for concurrent use. Parsers return substrings of their input, and never panic on any
// input.
package wire
