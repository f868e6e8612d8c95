// Package model runs the same scripts against the model of a JetStream consumer in internal/natstest and against a real server, and
// compares what both answer.
package model
