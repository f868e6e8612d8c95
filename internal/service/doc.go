// Package service has the shared parts of the systems that run as a process: settings from a file, the environment and flags, the log, and the
// connection to NATS. Package httpserve has the shared parts of their HTTP interfaces. Package openapi has checks of these interfaces against their
// OpenAPI documents, for tests.
package service
