package relay

import (
	"time"

	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// Setting is one key of the configuration, with its default and its description.
type Setting = service.Setting[Config]

// Settings returns all keys, in the order of the sample file.
func Settings() []Setting { return schema.Settings() }

// StrayVariables returns a warning for each variable in environ with the relay's prefix and an unknown name, except those in clients.
func StrayVariables(environ []string, clients ...string) []string {
	return schema.Stray(environ, clients...)
}

var schema = service.NewSchema("relay", map[string]string{
	"nats-name": "name", "relay-egress-proxy": "egress-proxy", "relay-egress-certificates": "egress-certificates",
},
	service.Text("http", "listener", "127.0.0.1:8080", "address to listen on", func(c *Config) *string { return &c.HTTP.Listener }),
	service.Number("http", "max-body-bytes", "1048576", 1, 8<<20, "maximum bytes of a message's body; a larger one is refused with 413",
		func(c *Config) *int { return &c.HTTP.MaxBodyBytes }),
	service.Number("http", "max-connections-per-address", "1024", 0, 1<<20,
		"maximum connections from one address, and at most half of the files that the process may open; all clients behind a proxy share its address "+
			"unless trusted-proxies names it; 0: no limit", func(c *Config) *int { return &c.HTTP.PerAddress }),
	service.List("http", "trusted-proxies", "", "addresses and networks of reverse proxies, such as 10.0.0.0/8, separated by commas; the client of "+
		"their requests is the last other address in X-Forwarded-For, and X-Forwarded-Prefix is in front of the paths that it sees",
		httpserve.CheckProxies, func(c *Config) *[]string { return &c.HTTP.Proxies }),
	service.Text("http", "public-url", "", "URL by which clients reach the listener, such as https://example.com/relay; its path is in front of "+
		"each path in a response; empty: the URL that they use, or that a trusted proxy says", func(c *Config) *string { return &c.HTTP.PublicURL }),
	service.Boolean("http", "open", "false", "listen beyond loopback without an admin token", func(c *Config) *bool { return &c.HTTP.Open }),
	service.Boolean("http", "open-metrics", "false", "show /metrics without the admin token", func(c *Config) *bool { return &c.HTTP.OpenMetrics }),

	service.Text("log", "filename", "", "file to log to; standard error if empty", func(c *Config) *string { return &c.Log.Filename }),
	service.Choice("log", "log-level", "info", []string{"debug", "info", "warn", "error"}, "lowest level that is logged",
		func(c *Config) *string { return &c.Log.Level }),

	service.Number("admin", "max-failed-logins-per-minute", "60", 0, 1<<20,
		"maximum requests with a wrong token from one address in a minute, each of which is logged and counted; beyond it the response to a wrong token "+
			"waits for a second until the minute is over; a right token is never refused; 0: no limit", func(c *Config) *int { return &c.Admin.MaxFailed }),
	service.Text("admin", "token", "", "token in Authorization: Bearer that requests for the configuration and for failed messages need; empty: "+
		"none is needed, which is allowed on loopback only", func(c *Config) *string { return &c.Admin.Token }),

	service.Number("relay", "concurrency", "64", 1, 3584, "maximum messages of one receiver, and callbacks of one sender, in progress at a time",
		func(c *Config) *int { return &c.Relay.Concurrency }),
	service.Duration("relay", "takeover-in-seconds", "5", time.Second, time.Second, time.Hour,
		"seconds after which other processes take over the work of a process that died", func(c *Config) *time.Duration { return &c.Relay.Takeover }),
	service.Duration("relay", "drain-in-seconds", "35", time.Second, 0, time.Hour, "seconds for which a stop waits for POSTs in flight; 0: not at all",
		func(c *Config) *time.Duration { return &c.Relay.Drain }),
	service.Duration("relay", "tombstone-in-seconds", "86400", time.Second, time.Second, 365*24*time.Hour,
		"seconds for which a finished message and its response are kept; a message with the same ID is not delivered again meanwhile",
		func(c *Config) *time.Duration { return &c.Relay.Tombstone }),
	service.Number("relay", "max-response-bytes", "262144", 0, 4<<20, "maximum bytes of a response that are kept; the rest is cut off; 0: none",
		func(c *Config) *int { return &c.Relay.MaxResponse }),
	service.Duration("relay", "poll-deadline-in-seconds", "86400", time.Second, time.Second, 365*24*time.Hour,
		"seconds for which a status endpoint is polled for a response; then the message fails",
		func(c *Config) *time.Duration { return &c.Relay.PollDeadline }),
	service.Duration("relay", "callback-deadline-in-seconds", "86400", time.Second, time.Second, 365*24*time.Hour,
		"seconds for which a callback is repeated that gets no 2xx; then it goes to the failed list",
		func(c *Config) *time.Duration { return &c.Relay.CallbackDeadline }),
	service.Duration("relay", "callback-timeout-in-seconds", "30", time.Second, 10*time.Millisecond, time.Hour,
		"maximum seconds of a callback to a sender, from connecting to the end of the response",
		func(c *Config) *time.Duration { return &c.Relay.CallbackTimeout }),
	service.Seconds("relay", "auto-redrive-in-seconds", "600,3600", 0,
		"seconds before each automatic redrive of a message that failed because its receiver or sender was not working, separated by commas; empty: "+
			"never", func(c *Config) *[]time.Duration { return &c.Relay.AutoRedrive }),
	service.Networks("relay", "POSTs and callbacks", "relay", egress), service.Proxy("relay", "POSTs, callbacks and events", egress),
	service.Certificates("relay", "receivers/NAME or senders/NAME", egress),
	service.Text("relay", "event-url", "", "URL that gets a POST when a receiver is disabled, its breaker opens or closes, or messages failed; "+
		"empty: none", func(c *Config) *string { return &c.Relay.EventURL }),

	service.Text("nats", "url", "", "URL of an existing NATS server, or several separated by commas; empty: run one in this process",
		func(c *Config) *string { return &c.NATS.URL }),
	service.Text("nats", "creds", "", "file with the credentials for that server", func(c *Config) *string { return &c.NATS.Creds }),
	service.Text("nats", "store-dir", "relay-data", "folder of the embedded server's store", func(c *Config) *string { return &c.NATS.StoreDir }),
	service.Text("nats", "name", "relay", "first part of the names of streams and subjects", func(c *Config) *string { return &c.NATS.Name }),
	service.Number("nats", "replicas", "1", 1, 5, "copies of each stream, 1 to 5; the embedded server has 1",
		func(c *Config) *int { return &c.NATS.Replicas }),
	service.Text("nats", "sync", "always", "when messages are synced to disk: always (before the response, together with others), each (each write), "+
		"or an interval such as 10s, with which a loss of power takes the messages since the last sync", func(c *Config) *string { return &c.NATS.Sync }),

	service.Text("sentry", "dsn", "", "DSN of the Sentry project that errors are reported to; empty: errors are only logged",
		func(c *Config) *string { return &c.Sentry.DSN }),
)

func egress(c *Config) *service.Egress { return &c.Relay.Egress }
