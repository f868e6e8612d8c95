package broker

import (
	"fmt"
	"slices"
	"time"

	"github.com/jetpull/jetpull/internal/service"
)

// Setting is one key of the configuration, with its default and its description.
type Setting = service.Setting[Config]

// Settings returns every known key, in the order of the sample file.
func Settings() []Setting { return schema.Settings() }

// StrayVariables returns a warning for each variable in environ that has the broker's prefix but names no setting. It skips clients.
func StrayVariables(environ []string, clients ...string) []string {
	return schema.Stray(environ, clients...)
}

var schema = service.NewSchema("broker", map[string]string{
	"nats-domain": "domain", "nats-store-max": "store-max", "http-tls-cert": "tls-cert",
	"http-tls-key": "tls-key", "consumer-connection-egress-proxy": "egress-proxy", "consumer-connection-egress-certificates": "egress-certificates",
}, slices.Concat(service.HTTPSettings("broker", "a request", "4194304", 31<<20, func(c *Config) *service.HTTP { return &c.HTTP.HTTP }), []Setting{
	duration("http", "read-timeout", "240", time.Second, 0, "maximum seconds to read a request; 0: no limit",
		func(c *Config) *time.Duration { return &c.HTTP.ReadTimeout }),
	duration("http", "write-timeout", "240", time.Second, 0, "maximum seconds to write a response, long polls included; 0: no limit",
		func(c *Config) *time.Duration { return &c.HTTP.WriteTimeout }),
	service.Text("http", "tls-cert", "", "file of the certificate, with its chain, to serve HTTPS with; read again when it changes",
		func(c *Config) *string { return &c.HTTP.TLSCert }),
	service.Text("http", "tls-key", "", "file of the certificate's key", func(c *Config) *string { return &c.HTTP.TLSKey }),
}, service.LogSettings([]string{"debug", "info", "warn", "error", "fatal"}, func(c *Config) *LogConfig { return &c.Log }), []Setting{
	ignored("log", "max-file-size-in-mb", "200", "log files are not rotated here: use logrotate with a SIGHUP"),
	ignored("log", "max-backups", "3", "log files are not rotated here: use logrotate with a SIGHUP"),
	ignored("log", "max-age-in-days", "28", "log files are not rotated here: use logrotate with a SIGHUP"),
	ignored("log", "compress-backups", "true", "log files are not rotated here: use logrotate with a SIGHUP"),

	ignored("broker", "max-message-queue-size", "10000", "jobs are not read ahead: each is taken from the index when its callback begins"),
	service.Number("broker", "max-workers", "200", 1, 1<<16, "maximum callbacks of one consumer at a time; a higher concurrency is reduced to this",
		func(c *Config) *int { return &c.Dispatch.MaxWorkers }),
	service.Number("broker", "concurrency", "32", 1, 1<<16, "callbacks of one consumer at a time, unless the consumer sets its own concurrency",
		func(c *Config) *int { return &c.Dispatch.Concurrency }),
	service.Number("broker", "max-retry", "5", 0, 255, "retries after the first attempt; then the job is dead; 0: none",
		func(c *Config) *int { return &c.Dispatch.MaxRetry }),
	duration("broker", "rational-delay-in-seconds", "2", time.Second, 0, "seconds for which a claim stays valid after the connection timeout",
		func(c *Config) *time.Duration { return &c.Dispatch.RationalDelay }),
	service.Seconds("broker", "retry-backoff-delays-in-seconds", "5,30,60,120,180", 1,
		"seconds before each retry of a callback, separated by commas; retries beyond the list wait for 2, 3, … times its last entry",
		func(c *Config) *[]time.Duration { return &c.Dispatch.Backoff }),
	service.Boolean("broker", "recovery-workers-enabled", "true", "requeue jobs whose claims have expired, in this process",
		func(c *Config) *bool { return &c.Dispatch.Recovery }),
	service.Number("broker", "breaker-failure-percent", "0", 0, 100,
		"percentage of failed callbacks at which a consumer's circuit breaker opens, which stops its callbacks for a time; 0: never",
		func(c *Config) *int { return &c.Breaker.FailurePercent }),
	service.Number("broker", "breaker-min-callbacks", "10", 1, 1<<20, "minimum callbacks in the window before the breaker can open",
		func(c *Config) *int { return &c.Breaker.MinCallbacks }),
	duration("broker", "breaker-window-in-seconds", "60", time.Second, time.Second, "seconds over which the breaker counts callbacks",
		func(c *Config) *time.Duration { return &c.Breaker.Window }),
	duration("broker", "breaker-open-in-seconds", "30", time.Second, time.Second,
		"seconds during which an open breaker makes no callbacks; after that it makes one, and closes if it succeeds",
		func(c *Config) *time.Duration { return &c.Breaker.Open }),
	duration("broker", "pause-after-failing-days", "0", 24*time.Hour, 0,
		"days after which a consumer is paused if all of its callbacks have failed, counted from the start of the process that makes them; 0: never",
		func(c *Config) *time.Duration { return &c.Breaker.PauseAfter }),
	service.Text("broker", "event-url", "", "URL that gets a POST when a consumer is paused or resumed, or its breaker opens or closes",
		func(c *Config) *string { return &c.Breaker.EventURL }),
	ignored("broker", "priority-dispatcher-enabled", "true", "priority is always respected"),
	ignored("broker", "retrigger-base-endpoint", "", "jobs are retried without HTTP"),

	service.Text("consumer-connection", "token-header-name", "X-Broker-Consumer-Token",
		"header of a callback that carries the consumer's token; it must not be one that the broker sets itself",
		func(c *Config) *string { return &c.Connection.TokenHeader }),
	service.Text("consumer-connection", "user-agent", "Webhook Message Broker", "User-Agent of callbacks",
		func(c *Config) *string { return &c.Connection.UserAgent }),
	duration("consumer-connection", "connection-timeout-in-seconds", "30", time.Second, time.Millisecond,
		"maximum seconds of a callback, from connecting to the end of the response", func(c *Config) *time.Duration { return &c.Connection.Timeout }),
	service.Networks("consumer-connection", "callbacks", "broker", egress), service.Proxy("consumer-connection", "callbacks and events", egress),
	service.Certificates("consumer-connection", "CHANNEL/CONSUMER", egress),

	duration("scheduler", "min-schedule-delay-minutes", "2", time.Minute, 0, "minimum minutes from now for which a message can be scheduled",
		func(c *Config) *time.Duration { return &c.Scheduler.MinDelay }),
	ignored("scheduler", "scheduler-interval-ms", "5000", "the server keeps the schedule"),
	ignored("scheduler", "scheduler-batch-size", "100", "the server keeps the schedule"),

	duration("prune", "message-retention-days", "7", 24*time.Hour, 0,
		"days to keep finished messages; 0: no limit, and memory and disk use grow",
		func(c *Config) *time.Duration { return &c.Prune.Retention }),
	duration("prune", "dead-retention-days", "0", 24*time.Hour, 0,
		"days to keep a message with a dead job, counted from the time when the job became dead, and not less than other messages; 0: until the job "+
			"is requeued or purged", func(c *Config) *time.Duration { return &c.Prune.DeadRetention }),
	duration("prune", "interval-in-seconds", "60", time.Second, 0, "seconds between two searches for messages to prune, at least 1",
		func(c *Config) *time.Duration { return &c.Prune.Interval }),
	service.Text("prune", "export-path", "", "folder for files with the pruned messages as lines of JSON; empty: none",
		func(c *Config) *string { return &c.Prune.ExportPath }),
	service.Text("prune", "export-node-name", "", "first part of the names of exported files, without slashes",
		func(c *Config) *string { return &c.Prune.NodeName }),
	refusedExport,
	ignored("prune", "remote-export-url", "", "export to a folder and copy it from there"),
	ignored("prune", "remote-file-prefix", "", "export to a folder and copy it from there"),
	ignored("prune", "max-archive-file-size-in-mb", "100", "there is one file for each day"),

	ignored("dlq", "summary-update-interval-seconds", "600", "the summary is always up to date"),

	service.Choice("gateway-auth", "mode", "none", []string{"none", "hmac"}, "whether requests must be signed",
		func(c *Config) *string { return &c.Gateway.Mode }),
	service.Choice("gateway-auth", "scheme", "v1", []string{"v1", "v2"},
		"what the signature of a request must cover; v1: time and body, as in the original (the broker accepts a request that is signed for v2 too); "+
			"v2: also method, path, query and a nonce", func(c *Config) *string { return &c.Gateway.Scheme }),
	service.Text("gateway-auth", "hmac-shared-secret", "", "key of the signatures, in base64; mode hmac needs it",
		func(c *Config) *string { return &c.Gateway.Secret }),
	duration("gateway-auth", "hmac-timestamp-tolerance-seconds", "300", time.Second, time.Second,
		"maximum difference in seconds between a signature's time and the broker's clock, at least 1",
		func(c *Config) *time.Duration { return &c.Gateway.Tolerance }),
	service.List("gateway-auth", "auth-exempt-paths", "/_status,/metrics",
		"prefixes of paths that need no signature, separated by commas; /healthz and /readyz never need one", anyText,
		func(c *Config) *[]string { return &c.Gateway.Exempt }),
}, service.AdminSettings("token in X-Broker-Admin-Token that requests to read or change the registry need, or its hash: sha256: and 64 hexadecimal "+
	"digits; empty: none is needed, which is allowed on loopback only", func(c *Config) *service.Admin { return &c.Admin.Admin }), []Setting{
	service.Boolean("admin", "hash-tokens", "false", "store the tokens of producers and channels as hashes, including existing ones; a token is then "+
		"shown only once", func(c *Config) *bool { return &c.Admin.HashTokens }),
}, service.NATSSettings("broker", func(c *Config) *service.NATS { return &c.NATS.NATS }), []Setting{
	duration("nats", "start-wait-in-seconds", "120", time.Second, 0,
		"maximum seconds to wait for the NATS servers and a quorum of them at the start; 0: no limit",
		func(c *Config) *time.Duration { return &c.NATS.StartWait }),
	service.Text("nats", "domain", "", "JetStream domain on that server; empty: its own", func(c *Config) *string { return &c.NATS.Domain }),
	service.Bytes("nats", "store-max", "0", "maximum bytes in the embedded server's store, such as 20GB; broadcasts beyond it are refused; 0: the "+
		"size of the disk, less a reserve of a twentieth", func(c *Config) *int64 { return &c.NATS.StoreMax }),
})...).Clamp((*Config).warn) // the original's files may exceed the limits

func egress(c *Config) *service.Egress { return &c.Connection.Egress }

// ignored returns a setting for a key of the original's files that has no effect.
func ignored(section, key, def, why string) Setting {
	return Setting{Section: section, Key: key, Default: def, Help: why, Ignored: true, Set: func(c *Config, _ string) error {
		c.warn(fmt.Sprintf("[%s] %s is accepted for compatibility and has no effect: %s", section, key, why))
		return nil
	}}
}

// refusedExport is a key of the original's files. [Config.Validate] refuses it while messages are pruned.
var refusedExport = Setting{Section: "prune", Key: "remote-export-destination", Ignored: true, Set: func(c *Config, value string) error {
	c.remoteExport = value
	return nil
}}

// anyText accepts every list.
func anyText([]string) error { return nil }

// duration returns a setting whose value is a number of units, a century at most.
func duration(section, key, def string, unit, least time.Duration, help string, field func(*Config) *time.Duration) Setting {
	return service.Duration(section, key, def, unit, least, service.Century, help, field)
}

func (c *Config) warn(text string) { c.Warnings = append(c.Warnings, text) }
