// Package domain is what the broker is about: producers, channels and consumers, messages and jobs, the state machine of
// a job, the rules of retries, event types and circuit breakers. Time is an argument. It knows
// neither configuration nor HTTP nor NATS, and starts nothing.
package domain
