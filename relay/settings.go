package relay

import (
	"time"

	"github.com/jetpull/jetpull/internal/service"
)

// Setting is one key of the configuration.
type Setting = service.Setting[Config]

// Settings returns all keys, in the order of the sample file.
func Settings() []Setting { return schema.Settings() }

// StrayVariables returns warnings for environment variables that have the relay's prefix and are neither its own nor its
// clients'.
func StrayVariables(environ []string, clients ...string) []string {
	return schema.Stray(environ, clients...)
}

var schema = service.NewSchema("relay", map[string]string{"nats-name": "name"},
	service.Text("http", "listener", "127.0.0.1:8080", "address to listen on", func(c *Config) *string { return &c.HTTP.Listener }),
	service.Number("http", "max-body-bytes", "1048576", 1, 8<<20, "largest body of a message; a larger one is refused with 413", func(c *Config) *int { return &c.HTTP.MaxBodyBytes }),
	service.Number("http", "max-connections-per-address", "1024", 0, 1<<20, "connections that one address may have, and at most half of the files that the process may open; behind a proxy all have its address, since forwarding headers are not trusted; 0: no limit", func(c *Config) *int { return &c.HTTP.PerAddress }),
	service.Boolean("http", "open", "false", "listen beyond loopback without an admin token", func(c *Config) *bool { return &c.HTTP.Open }),
	service.Boolean("http", "open-metrics", "false", "show /metrics without the admin token", func(c *Config) *bool { return &c.HTTP.OpenMetrics }),

	service.Text("log", "filename", "", "file to log to; standard error if empty", func(c *Config) *string { return &c.Log.Filename }),
	service.Choice("log", "log-level", "info", []string{"debug", "info", "warn", "error"}, "least level to log", func(c *Config) *string { return &c.Log.Level }),

	service.Number("admin", "max-failed-logins-per-minute", "60", 0, 1<<20, "wrong tokens that one address may show in a minute, which are logged and counted; beyond that no admin token is accepted from there until the minute is over; behind a proxy all have its address; 0: no limit", func(c *Config) *int { return &c.Admin.MaxFailed }),
	service.Text("admin", "token", "", "token that configuration and failed messages need, as Authorization: Bearer", func(c *Config) *string { return &c.Admin.Token }),

	service.Number("relay", "concurrency", "64", 1, 3584, "most messages of one receiver, or one sender, in work at a time", func(c *Config) *int { return &c.Relay.Concurrency }),
	service.Duration("relay", "takeover-in-seconds", "5", time.Second, time.Second, time.Hour, "how long a process that died keeps its work from others", func(c *Config) *time.Duration { return &c.Relay.Takeover }),
	service.Duration("relay", "drain-in-seconds", "35", time.Second, 0, time.Hour, "how long a stop waits for requests in flight", func(c *Config) *time.Duration { return &c.Relay.Drain }),
	service.Duration("relay", "tombstone-in-seconds", "86400", time.Second, time.Second, 365*24*time.Hour, "how long a message that is done is remembered, with its response", func(c *Config) *time.Duration { return &c.Relay.Tombstone }),
	service.Number("relay", "max-response-bytes", "262144", 0, 4<<20, "bytes of a response that are kept; the rest is cut off", func(c *Config) *int { return &c.Relay.MaxResponse }),
	service.Duration("relay", "poll-deadline-in-seconds", "86400", time.Second, time.Second, 365*24*time.Hour, "how long a status endpoint is asked for a response", func(c *Config) *time.Duration { return &c.Relay.PollDeadline }),
	service.Duration("relay", "callback-deadline-in-seconds", "86400", time.Second, time.Second, 365*24*time.Hour, "how long a sender is called that does not answer with 2xx", func(c *Config) *time.Duration { return &c.Relay.CallbackDeadline }),
	service.Duration("relay", "callback-timeout-in-seconds", "30", time.Second, 10*time.Millisecond, time.Hour, "time that a callback to a sender may take in all", func(c *Config) *time.Duration { return &c.Relay.CallbackTimeout }),
	service.Seconds("relay", "auto-redrive-in-seconds", "600,3600", 0, "waits before a message that failed for want of a working receiver or sender is redriven by itself; empty: never", func(c *Config) *[]time.Duration { return &c.Relay.AutoRedrive }),
	service.Text("relay", "networks", "auto", "where receivers and callbacks may be: public, any, networks such as 10.0.0.0/8 that are allowed beside the public ones, or auto, which is any behind a loopback listener and public otherwise", func(c *Config) *string { return &c.Relay.Networks }),
	service.Text("relay", "event-url", "", "URL that gets a POST when a receiver is disabled, its breaker opens or closes, or messages failed", func(c *Config) *string { return &c.Relay.EventURL }),

	service.Text("nats", "url", "", "existing NATS server or cluster; empty runs one in this process", func(c *Config) *string { return &c.NATS.URL }),
	service.Text("nats", "creds", "", "credentials file for it", func(c *Config) *string { return &c.NATS.Creds }),
	service.Text("nats", "store-dir", "relay-data", "folder of the embedded server", func(c *Config) *string { return &c.NATS.StoreDir }),
	service.Text("nats", "name", "relay", "front part of the names of streams and subjects", func(c *Config) *string { return &c.NATS.Name }),
	service.Number("nats", "replicas", "1", 1, 5, "copies of each stream", func(c *Config) *int { return &c.NATS.Replicas }),
	service.Text("nats", "sync", "2m", "when the embedded server syncs writes to disk: each, one by one before it is answered, or an interval such as 2m", func(c *Config) *string { return &c.NATS.Sync }),

	service.Text("sentry", "dsn", "", "Sentry project that errors are reported to; empty: the log only", func(c *Config) *string { return &c.Sentry.DSN }),
)
