package broker

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is one key of the configuration.
type Setting struct {
	Section string
	Key     string
	Default string
	Help    string
	// Ignored settings are accepted for the sake of existing files.
	Ignored bool
	apply   func(c *Config, value string) error
}

// shortFlags are the flags that are worth a name of their own.
var shortFlags = map[string]string{
	"nats-url": "nats", "nats-creds": "creds", "nats-domain": "domain", "nats-store-dir": "store-dir", "nats-sync": "sync", "nats-replicas": "replicas", "nats-store-max": "store-max",
	"http-listener": "listen", "log-log-level": "log-level", "log-filename": "log-file",
}

// Flag is the setting's name on the command line, without the dashes.
func (s Setting) Flag() string {
	name := s.Section + "-" + s.Key
	if short, ok := shortFlags[name]; ok {
		return short
	}
	return name
}

// Env is the setting's name in the environment.
func (s Setting) Env() string {
	return "JETPULL_BROKER_" + strings.ToUpper(strings.ReplaceAll(s.Section+"_"+s.Key, "-", "_"))
}

// Apply sets the value in a configuration. The error names the key.
func (s Setting) Apply(c *Config, value string) error {
	if s.Ignored {
		c.Warnings = append(c.Warnings, fmt.Sprintf("[%s] %s is accepted for compatibility and has no effect: %s", s.Section, s.Key, s.Help))
		return nil
	}
	if err := s.apply(c, value); err != nil {
		return fmt.Errorf("[%s] %s: %w", s.Section, s.Key, err)
	}
	return nil
}

// Secret tells whether the value must not be shown.
func (s Setting) Secret() bool {
	return s.Section == "admin" || s.Key == "hmac-shared-secret"
}

// Settings returns every key that is known, in the order of the sample file.
func Settings() []Setting { return slices.Clone(settings) }

var settings = []Setting{
	text("http", "listener", "127.0.0.1:8080", "address to listen on", func(c *Config) *string { return &c.HTTP.Listener }),
	duration("http", "read-timeout", "240", time.Second, "seconds a request may take to come in", func(c *Config) *time.Duration { return &c.HTTP.ReadTimeout }),
	duration("http", "write-timeout", "240", time.Second, "seconds an answer may take to go out, long polls included", func(c *Config) *time.Duration { return &c.HTTP.WriteTimeout }),
	number("http", "max-body-bytes", "4194304", 1, 60<<20, "largest request body; a larger one is refused with 413", func(c *Config) *int { return &c.HTTP.MaxBodyBytes }),
	boolean("http", "open", "false", "listen beyond loopback without an admin token", func(c *Config) *bool { return &c.HTTP.Open }),
	boolean("http", "open-metrics", "false", "show /metrics without the admin token", func(c *Config) *bool { return &c.HTTP.OpenMetrics }),

	text("log", "filename", "", "file to log to, opened again on SIGHUP; standard error if empty", func(c *Config) *string { return &c.Log.Filename }),
	choice("log", "log-level", "info", []string{"debug", "info", "warn", "error", "fatal"}, "least level to log", func(c *Config) *string { return &c.Log.Level }),
	ignored("log", "max-file-size-in-mb", "200", "log files are not rotated here: use logrotate with a SIGHUP"),
	ignored("log", "max-backups", "3", "log files are not rotated here: use logrotate with a SIGHUP"),
	ignored("log", "max-age-in-days", "28", "log files are not rotated here: use logrotate with a SIGHUP"),
	ignored("log", "compress-backups", "true", "log files are not rotated here: use logrotate with a SIGHUP"),

	number("broker", "max-message-queue-size", "10000", 1, 1<<20, "most deliveries of one push consumer held in memory", func(c *Config) *int { return &c.Dispatch.QueueSize }),
	number("broker", "max-workers", "200", 1, 1<<16, "most callbacks of one consumer at a time, whatever it asks for", func(c *Config) *int { return &c.Dispatch.MaxWorkers }),
	number("broker", "concurrency", "32", 1, 1<<16, "callbacks of one consumer at a time, unless it has its own number", func(c *Config) *int { return &c.Dispatch.Concurrency }),
	number("broker", "max-retry", "5", 0, 255, "retries before a job is dead", func(c *Config) *int { return &c.Dispatch.MaxRetry }),
	duration("broker", "rational-delay-in-seconds", "2", time.Second, "grace on top of a claim's time limit", func(c *Config) *time.Duration { return &c.Dispatch.RationalDelay }),
	{
		Section: "broker", Key: "retry-backoff-delays-in-seconds", Default: "5,30,60,120,180",
		Help: "waits before the retries of a callback", apply: applyBackoff,
	},
	boolean("broker", "recovery-workers-enabled", "true", "let this process end claims that are over and retry callbacks", func(c *Config) *bool { return &c.Dispatch.Recovery }),
	ignored("broker", "priority-dispatcher-enabled", "true", "priority is always respected"),
	ignored("broker", "retrigger-base-endpoint", "", "jobs are retried without HTTP"),

	text("consumer-connection", "token-header-name", "X-Broker-Consumer-Token", "header of a callback that carries the consumer's token", func(c *Config) *string { return &c.Connection.TokenHeader }),
	text("consumer-connection", "user-agent", "Webhook Message Broker", "user agent of callbacks", func(c *Config) *string { return &c.Connection.UserAgent }),
	duration("consumer-connection", "connection-timeout-in-seconds", "30", time.Second, "time that a callback may take in all", func(c *Config) *time.Duration { return &c.Connection.Timeout }),
	text("consumer-connection", "networks", "auto", "where callbacks may be: public, any, networks such as 10.0.0.0/8 that are allowed beside the public ones, or auto, which is any behind a loopback listener and public otherwise", func(c *Config) *string { return &c.Connection.Networks }),

	duration("scheduler", "min-schedule-delay-minutes", "2", time.Minute, "least time from now that a message may be scheduled for", func(c *Config) *time.Duration { return &c.Scheduler.MinDelay }),
	ignored("scheduler", "scheduler-interval-ms", "5000", "the server keeps the schedule"),
	ignored("scheduler", "scheduler-batch-size", "100", "the server keeps the schedule"),

	duration("prune", "message-retention-days", "7", 24*time.Hour, "days to keep finished messages; 0 keeps them for ever, and memory and disk grow", func(c *Config) *time.Duration { return &c.Prune.Retention }),
	duration("prune", "interval-in-seconds", "60", time.Second, "how often to look for messages to prune", func(c *Config) *time.Duration { return &c.Prune.Interval }),
	text("prune", "export-path", "", "folder to write pruned messages to as JSON lines", func(c *Config) *string { return &c.Prune.ExportPath }),
	text("prune", "export-node-name", "", "part of the names of exported files", func(c *Config) *string { return &c.Prune.NodeName }),
	ignored("prune", "remote-export-destination", "", "export to a folder and copy it from there"),
	ignored("prune", "remote-export-url", "", "export to a folder and copy it from there"),
	ignored("prune", "remote-file-prefix", "", "export to a folder and copy it from there"),
	ignored("prune", "max-archive-file-size-in-mb", "100", "there is one file for each day"),

	ignored("dlq", "summary-update-interval-seconds", "600", "the summary is always up to date"),

	choice("gateway-auth", "mode", "none", []string{"none", "hmac"}, "whether requests must be signed", func(c *Config) *string { return &c.Gateway.Mode }),
	text("gateway-auth", "hmac-shared-secret", "", "key of the signatures, in base64", func(c *Config) *string { return &c.Gateway.Secret }),
	duration("gateway-auth", "hmac-timestamp-tolerance-seconds", "300", time.Second, "how far a signature's time may be off", func(c *Config) *time.Duration { return &c.Gateway.Tolerance }),
	{
		Section: "gateway-auth", Key: "auth-exempt-paths", Default: "/_status,/metrics,/healthz,/readyz",
		Help:  "paths that need no signature, by prefix",
		apply: func(c *Config, value string) error { c.Gateway.Exempt = splitList(value); return nil },
	},

	text("admin", "token", "", "token that changing and reading the registry needs, in X-Broker-Admin-Token", func(c *Config) *string { return &c.Admin.Token }),

	text("nats", "url", "", "existing NATS server or cluster; empty runs one in this process", func(c *Config) *string { return &c.NATS.URL }),
	text("nats", "creds", "", "credentials file for it", func(c *Config) *string { return &c.NATS.Creds }),
	text("nats", "domain", "", "JetStream domain to use there", func(c *Config) *string { return &c.NATS.Domain }),
	text("nats", "store-dir", "broker-data", "folder of the embedded server", func(c *Config) *string { return &c.NATS.StoreDir }),
	{
		Section: "nats", Key: "store-max", Default: "0",
		Help: "bytes that the embedded server may keep, such as 20GB; broadcasts are refused then; 0 is what the disk has, less a reserve of a twentieth", apply: applyStoreMax,
	},
	text("nats", "name", "broker", "front part of the names of streams and subjects", func(c *Config) *string { return &c.NATS.Name }),
	number("nats", "replicas", "1", 1, 5, "copies of each stream", func(c *Config) *int { return &c.NATS.Replicas }),
	text("nats", "sync", "always", "when writes to the embedded server are synced: always, before they are answered, together with others; each, one by one; or an interval such as 2m", func(c *Config) *string { return &c.NATS.Sync }),
}

func text(section, key, def, help string, field func(*Config) *string) Setting {
	return Setting{Section: section, Key: key, Default: def, Help: help, apply: func(c *Config, value string) error {
		*field(c) = value
		return nil
	}}
}

func ignored(section, key, def, why string) Setting {
	return Setting{Section: section, Key: key, Default: def, Help: why, Ignored: true}
}

func number(section, key, def string, least, most int, help string, field func(*Config) *int) Setting {
	return Setting{Section: section, Key: key, Default: def, Help: help, apply: func(c *Config, value string) error {
		n, err := strconv.Atoi(value)
		if tooLarge := errors.Is(err, strconv.ErrRange); err != nil && !tooLarge || n < least {
			return fmt.Errorf("%q is not a whole number from %d to %d", value, least, most)
		}
		if n > most {
			c.Warnings = append(c.Warnings, fmt.Sprintf("[%s] %s: %s is more than %d and counts as that", section, key, value, most))
			n = most
		}
		*field(c) = n
		return nil
	}}
}

func boolean(section, key, def, help string, field func(*Config) *bool) Setting {
	return Setting{Section: section, Key: key, Default: def, Help: help, apply: func(c *Config, value string) error {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		*field(c) = b
		return nil
	}}
}

func choice(section, key, def string, of []string, help string, field func(*Config) *string) Setting {
	return Setting{Section: section, Key: key, Default: def, Help: help, apply: func(c *Config, value string) error {
		if !slices.Contains(of, value) {
			return fmt.Errorf("%q is not one of %s", value, strings.Join(of, ", "))
		}
		*field(c) = value
		return nil
	}}
}

// duration reads a number of units, which may have a fraction.
func duration(section, key, def string, unit time.Duration, help string, field func(*Config) *time.Duration) Setting {
	return Setting{Section: section, Key: key, Default: def, Help: help, apply: func(c *Config, value string) error {
		d, err := parseUnits(value, unit)
		if err != nil {
			return err
		}
		*field(c) = d
		return nil
	}}
}

func parseUnits(value string, unit time.Duration) (time.Duration, error) {
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(n) || n < 0 || n*float64(unit) > float64(100*365*24*time.Hour) {
		return 0, fmt.Errorf("%q is not a number of %s from 0 to 100 years", value, unitName(unit))
	}
	return time.Duration(n * float64(unit)), nil
}

func unitName(unit time.Duration) string {
	switch unit {
	case time.Minute:
		return "minutes"
	case 24 * time.Hour:
		return "days"
	}
	return "seconds"
}

// byteUnits are what a number of bytes can end with.
var byteUnits = []struct {
	name  string
	bytes float64
}{{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}

func applyStoreMax(c *Config, value string) error {
	for _, unit := range byteUnits {
		text, ok := strings.CutSuffix(strings.ToUpper(value), unit.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil || !(n >= 0 && n*unit.bytes <= 1<<60) {
			break
		}
		c.NATS.StoreMax = int64(n * unit.bytes)
		return nil
	}
	return fmt.Errorf("%q is not a number of bytes, such as 500MB or 20GB", value)
}

func applyBackoff(c *Config, value string) error {
	var backoff Backoff
	for _, part := range splitList(value) {
		d, err := parseUnits(part, time.Second)
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

func splitList(value string) []string {
	var list []string
	for _, part := range strings.Split(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}
