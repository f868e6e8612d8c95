// Package service is what the systems that run as a process have in common: settings from a file, the environment and
// flags, the log, the connection to NATS. Package httpserve has the same for their HTTP interfaces, and package openapi
// holds those against their documents in tests.
package service
