package broker

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/internal/service"
)

// Setting is one key of the configuration.
type Setting = service.Setting[Config]

// Settings returns every key that is known, in the order of the sample file.
func Settings() []Setting { return schema.Settings() }

// StrayVariables warns of environment variables that look like the broker's and are none.
func StrayVariables(environ []string) []string { return schema.Stray(environ) }

var schema = service.NewSchema("broker", map[string]string{"nats-domain": "domain", "nats-store-max": "store-max", "http-tls-cert": "tls-cert", "http-tls-key": "tls-key"},
	service.Text("http", "listener", "127.0.0.1:8080", "address to listen on", func(c *Config) *string { return &c.HTTP.Listener }),
	duration("http", "read-timeout", "240", time.Second, 0, "seconds a request may take to come in", func(c *Config) *time.Duration { return &c.HTTP.ReadTimeout }),
	duration("http", "write-timeout", "240", time.Second, 0, "seconds an answer may take to go out, long polls included", func(c *Config) *time.Duration { return &c.HTTP.WriteTimeout }),
	number("http", "max-body-bytes", "4194304", 1, 60<<20, "largest request body; a larger one is refused with 413", func(c *Config) *int { return &c.HTTP.MaxBodyBytes }),
	number("http", "max-connections-per-address", "1024", 0, 1<<20, "connections that one address may have, and at most half of the files that the process may open; behind a proxy all have its address, since forwarding headers are not trusted; 0: no limit", func(c *Config) *int { return &c.HTTP.PerAddress }),
	service.Boolean("http", "open", "false", "listen beyond loopback without an admin token", func(c *Config) *bool { return &c.HTTP.Open }),
	service.Text("http", "tls-cert", "", "file of the certificate, with its chain, to serve HTTPS with; read again when it changes", func(c *Config) *string { return &c.HTTP.TLSCert }),
	service.Text("http", "tls-key", "", "file of the certificate's key", func(c *Config) *string { return &c.HTTP.TLSKey }),
	service.Boolean("http", "open-metrics", "false", "show /metrics without the admin token", func(c *Config) *bool { return &c.HTTP.OpenMetrics }),

	service.Text("log", "filename", "", "file to log to, opened again on SIGHUP; standard error if empty", func(c *Config) *string { return &c.Log.Filename }),
	service.Choice("log", "log-level", "info", []string{"debug", "info", "warn", "error", "fatal"}, "least level to log", func(c *Config) *string { return &c.Log.Level }),
	ignored("log", "max-file-size-in-mb", "200", "log files are not rotated here: use logrotate with a SIGHUP"),
	ignored("log", "max-backups", "3", "log files are not rotated here: use logrotate with a SIGHUP"),
	ignored("log", "max-age-in-days", "28", "log files are not rotated here: use logrotate with a SIGHUP"),
	ignored("log", "compress-backups", "true", "log files are not rotated here: use logrotate with a SIGHUP"),

	ignored("broker", "max-message-queue-size", "10000", "jobs are not read ahead: each is taken from the index when its callback begins"),
	number("broker", "max-workers", "200", 1, 1<<16, "most callbacks of one consumer at a time, whatever it asks for", func(c *Config) *int { return &c.Dispatch.MaxWorkers }),
	number("broker", "concurrency", "32", 1, 1<<16, "callbacks of one consumer at a time, unless it has its own number", func(c *Config) *int { return &c.Dispatch.Concurrency }),
	number("broker", "max-retry", "5", 0, 255, "retries before a job is dead", func(c *Config) *int { return &c.Dispatch.MaxRetry }),
	duration("broker", "rational-delay-in-seconds", "2", time.Second, 0, "grace on top of a claim's time limit", func(c *Config) *time.Duration { return &c.Dispatch.RationalDelay }),
	Setting{
		Section: "broker", Key: "retry-backoff-delays-in-seconds", Default: "5,30,60,120,180",
		Help: "waits before the retries of a callback", Set: applyBackoff,
	},
	service.Boolean("broker", "recovery-workers-enabled", "true", "let this process end claims that are over", func(c *Config) *bool { return &c.Dispatch.Recovery }),
	number("broker", "breaker-failure-percent", "0", 0, 100, "share of failed callbacks that opens a consumer's circuit breaker, so that none is made for a time; 0: never", func(c *Config) *int { return &c.Breaker.FailurePercent }),
	number("broker", "breaker-min-callbacks", "10", 1, 1<<20, "callbacks that a window must have had before the breaker opens", func(c *Config) *int { return &c.Breaker.MinCallbacks }),
	duration("broker", "breaker-window-in-seconds", "60", time.Second, time.Second, "time over which the breaker counts", func(c *Config) *time.Duration { return &c.Breaker.Window }),
	duration("broker", "breaker-open-in-seconds", "30", time.Second, time.Second, "time without callbacks; then one is made, whose outcome decides", func(c *Config) *time.Duration { return &c.Breaker.Open }),
	duration("broker", "pause-after-failing-days", "0", 24*time.Hour, 0, "days for which all callbacks of a consumer must have failed before it is paused; 0: never", func(c *Config) *time.Duration { return &c.Breaker.PauseAfter }),
	service.Text("broker", "event-url", "", "URL that gets a POST when a consumer is paused or resumed, or its breaker opens, half-opens or closes", func(c *Config) *string { return &c.Breaker.EventURL }),
	ignored("broker", "priority-dispatcher-enabled", "true", "priority is always respected"),
	ignored("broker", "retrigger-base-endpoint", "", "jobs are retried without HTTP"),

	service.Text("consumer-connection", "token-header-name", "X-Broker-Consumer-Token", "header of a callback that carries the consumer's token; none that callbacks have anyway", func(c *Config) *string { return &c.Connection.TokenHeader }),
	service.Text("consumer-connection", "user-agent", "Webhook Message Broker", "user agent of callbacks", func(c *Config) *string { return &c.Connection.UserAgent }),
	duration("consumer-connection", "connection-timeout-in-seconds", "30", time.Second, time.Millisecond, "time that a callback may take in all", func(c *Config) *time.Duration { return &c.Connection.Timeout }),
	service.Text("consumer-connection", "networks", "auto", "where callbacks may be: public, any, networks such as 10.0.0.0/8 that are allowed beside the public ones, or auto, which is any behind a loopback listener and public otherwise", func(c *Config) *string { return &c.Connection.Networks }),

	duration("scheduler", "min-schedule-delay-minutes", "2", time.Minute, 0, "least time from now that a message may be scheduled for", func(c *Config) *time.Duration { return &c.Scheduler.MinDelay }),
	ignored("scheduler", "scheduler-interval-ms", "5000", "the server keeps the schedule"),
	ignored("scheduler", "scheduler-batch-size", "100", "the server keeps the schedule"),

	duration("prune", "message-retention-days", "7", 24*time.Hour, 0, "days to keep finished messages; 0 keeps them for ever, and memory and disk grow", func(c *Config) *time.Duration { return &c.Prune.Retention }),
	duration("prune", "interval-in-seconds", "60", time.Second, 0, "how often to look for messages to prune", func(c *Config) *time.Duration { return &c.Prune.Interval }),
	service.Text("prune", "export-path", "", "folder to write pruned messages to as JSON lines", func(c *Config) *string { return &c.Prune.ExportPath }),
	service.Text("prune", "export-node-name", "", "front part of the names of exported files, without slashes", func(c *Config) *string { return &c.Prune.NodeName }),
	ignored("prune", "remote-export-destination", "", "export to a folder and copy it from there"),
	ignored("prune", "remote-export-url", "", "export to a folder and copy it from there"),
	ignored("prune", "remote-file-prefix", "", "export to a folder and copy it from there"),
	ignored("prune", "max-archive-file-size-in-mb", "100", "there is one file for each day"),

	ignored("dlq", "summary-update-interval-seconds", "600", "the summary is always up to date"),

	service.Choice("gateway-auth", "mode", "none", []string{"none", "hmac"}, "whether requests must be signed", func(c *Config) *string { return &c.Gateway.Mode }),
	service.Choice("gateway-auth", "scheme", "v1", []string{"v1", "v2"}, "what a signature must cover: v1, the original's, time and body; v2 method, path, query and a nonce too. v1 accepts both", func(c *Config) *string { return &c.Gateway.Scheme }),
	service.Text("gateway-auth", "hmac-shared-secret", "", "key of the signatures, in base64", func(c *Config) *string { return &c.Gateway.Secret }),
	duration("gateway-auth", "hmac-timestamp-tolerance-seconds", "300", time.Second, time.Second, "seconds that a signature's time may be off, 1 at least", func(c *Config) *time.Duration { return &c.Gateway.Tolerance }),
	Setting{
		Section: "gateway-auth", Key: "auth-exempt-paths", Default: "/_status,/metrics",
		Help: "paths that need no signature, by prefix, beside /healthz and /readyz, which never do",
		Set:  func(c *Config, value string) error { c.Gateway.Exempt = service.SplitList(value); return nil },
	},

	service.Text("admin", "token", "", "token that changing and reading the registry needs, in X-Broker-Admin-Token; or its hash: sha256: and 64 hexadecimal digits", func(c *Config) *string { return &c.Admin.Token }),
	number("admin", "max-failed-logins-per-minute", "60", 0, 1<<20, "wrong admin tokens that one address may show in a minute, which are logged and counted; beyond that no admin token is accepted from there until the minute is over; behind a proxy all have its address; 0: no limit", func(c *Config) *int { return &c.Admin.MaxFailed }),
	service.Boolean("admin", "hash-tokens", "false", "store the tokens of producers and channels as hashes, those that are there too; each is shown once then", func(c *Config) *bool { return &c.Admin.HashTokens }),

	service.Text("nats", "url", "", "existing NATS server or cluster; empty runs one in this process", func(c *Config) *string { return &c.NATS.URL }),
	service.Text("nats", "creds", "", "credentials file for it", func(c *Config) *string { return &c.NATS.Creds }),
	duration("nats", "start-wait-in-seconds", "120", time.Second, 0, "seconds that a start waits for the NATS servers, and for a quorum of them, before it fails; 0: without an end", func(c *Config) *time.Duration { return &c.NATS.StartWait }),
	service.Text("nats", "domain", "", "JetStream domain to use there", func(c *Config) *string { return &c.NATS.Domain }),
	service.Text("nats", "store-dir", "broker-data", "folder of the embedded server", func(c *Config) *string { return &c.NATS.StoreDir }),
	Setting{
		Section: "nats", Key: "store-max", Default: "0",
		Help: "bytes that the embedded server may keep, such as 20GB; broadcasts are refused then; 0 is what the disk has, less a reserve of a twentieth", Set: applyStoreMax,
	},
	service.Text("nats", "name", "broker", "front part of the names of streams and subjects", func(c *Config) *string { return &c.NATS.Name }),
	number("nats", "replicas", "1", 1, 5, "copies of each stream", func(c *Config) *int { return &c.NATS.Replicas }),
	service.Text("nats", "sync", "always", "when writes to the embedded server are synced: always, before they are answered, together with others; each, one by one; or an interval such as 2m", func(c *Config) *string { return &c.NATS.Sync }),
)

func ignored(section, key, def, why string) Setting {
	return Setting{Section: section, Key: key, Default: def, Help: why, Ignored: true, Set: func(c *Config, _ string) error {
		c.Warnings = append(c.Warnings, fmt.Sprintf("[%s] %s is accepted for compatibility and has no effect: %s", section, key, why))
		return nil
	}}
}

// number is a whole number. What is above the bound counts as that, since files of the original have such.
func number(section, key, def string, least, most int, help string, field func(*Config) *int) Setting {
	return Setting{Section: section, Key: key, Default: def, Help: help, Set: func(c *Config, value string) error {
		n, err := strconv.Atoi(value)
		if tooLarge := errors.Is(err, strconv.ErrRange); err != nil && !tooLarge || n < least {
			return fmt.Errorf("%q is not a whole number from %d to %d", value, least, most)
		}
		if n > most {
			c.clamped(section, key, value, int64(most))
			n = most
		}
		*field(c) = n
		return nil
	}}
}

// duration is a number of units, which may have a fraction, up to a century.
func duration(section, key, def string, unit, least time.Duration, help string, field func(*Config) *time.Duration) Setting {
	return Setting{Section: section, Key: key, Default: def, Help: help, Set: func(c *Config, value string) error {
		d, err := c.parseDuration(section, key, value, unit, least)
		if err == nil {
			*field(c) = d
		}
		return err
	}}
}

func (c *Config) parseDuration(section, key, value string, unit, least time.Duration) (time.Duration, error) {
	// Of what is no number, this is 0; of what is too large for one, infinite.
	if n, _ := strconv.ParseFloat(value, 64); n*float64(unit) > float64(service.Century) {
		c.clamped(section, key, value, int64(service.Century/unit))
		return service.Century, nil
	}
	return service.ParseDuration(value, unit, least, service.Century)
}

// clamped warns of a value above its bound.
func (c *Config) clamped(section, key, value string, most int64) {
	c.Warnings = append(c.Warnings, fmt.Sprintf("[%s] %s: %s is more than %d and counts as that", section, key, value, most))
}

// byteUnits are what a number of bytes can end with.
var byteUnits = []struct {
	name  string
	bytes float64
}{{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}

// largestStore is the largest bound of a store, an exbibyte.
const largestStore = 1 << 60

func applyStoreMax(c *Config, value string) error {
	for _, unit := range byteUnits {
		text, ok := strings.CutSuffix(strings.ToUpper(value), unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) || !(n >= 0) {
			break
		}
		if n*unit.bytes > largestStore {
			c.clamped("nats", "store-max", value, largestStore)
			n, unit.bytes = 1, largestStore
		}
		c.NATS.StoreMax = int64(n * unit.bytes)
		return nil
	}
	return fmt.Errorf("%q is not a number of bytes, such as 500MB or 20GB", value)
}

func applyBackoff(c *Config, value string) error {
	var backoff []time.Duration
	for _, part := range service.SplitList(value) {
		d, err := c.parseDuration("broker", "retry-backoff-delays-in-seconds", part, time.Second, 0)
		if err != nil {
			return err
		}
		backoff = append(backoff, d)
	}
	if len(backoff) == 0 {
		return fmt.Errorf("%q is not a list of seconds, such as 5,30,60", value)
	}
	c.Dispatch.Backoff = backoff
	return nil
}
