// Package wire encodes and decodes the protocol between a pull client and nats-server: the JSON of a pull request, the acknowledgement payloads, the
// ack subject that every delivered message has as its reply subject, the header of a status frame, and the API subjects.
//
// All functions are pure and safe for concurrent use. Parsers return substrings of their input and never panic, whatever the peer sends.
package wire
