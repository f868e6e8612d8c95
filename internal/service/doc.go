// Package service has the shared parts of the systems that run as a process: settings from a file, the environment and
// flags, the log, and the connection to NATS. Package httpserve has those of their HTTP interfaces. Package openapi
// checks the HTTP interfaces against their OpenAPI documents in tests.
package service
