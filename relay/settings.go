package relay

import (
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
	apply   func(c *Config, value string) error
}

// shortFlags are the flags that are worth a name of their own.
var shortFlags = map[string]string{
	"nats-url": "nats", "nats-creds": "creds", "nats-store-dir": "store-dir", "nats-sync": "sync", "nats-replicas": "replicas", "nats-name": "name",
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
	return "JETPULL_RELAY_" + strings.ToUpper(strings.ReplaceAll(s.Section+"_"+s.Key, "-", "_"))
}

// Apply sets the value in a configuration. The error names the key.
func (s Setting) Apply(c *Config, value string) error {
	if err := s.apply(c, value); err != nil {
		return fmt.Errorf("[%s] %s: %w", s.Section, s.Key, err)
	}
	return nil
}

// Settings returns every key that is known, in the order of the sample file.
func Settings() []Setting { return slices.Clone(settings) }

var settings = []Setting{
	text("http", "listener", "127.0.0.1:8080", "address to listen on", func(c *Config) *string { return &c.HTTP.Listener }),
	number("http", "max-body-bytes", "1048576", 1, 8<<20, "largest body of a message; a larger one is refused with 413", func(c *Config) *int { return &c.HTTP.MaxBodyBytes }),
	boolean("http", "open", "false", "listen beyond loopback without an admin token", func(c *Config) *bool { return &c.HTTP.Open }),

	text("log", "filename", "", "file to log to; standard error if empty", func(c *Config) *string { return &c.Log.Filename }),
	choice("log", "log-level", "info", []string{"debug", "info", "warn", "error"}, "least level to log", func(c *Config) *string { return &c.Log.Level }),

	text("admin", "token", "", "token that configuration and failed messages need, as Authorization: Bearer", func(c *Config) *string { return &c.Admin.Token }),

	number("relay", "concurrency", "64", 1, 3584, "most messages of one receiver, or one sender, in work at a time", func(c *Config) *int { return &c.Relay.Concurrency }),
	seconds("takeover-in-seconds", "5", time.Second, time.Hour, "how long a process that died keeps its work from others", func(c *Config) *time.Duration { return &c.Relay.Takeover }),
	seconds("drain-in-seconds", "35", 0, time.Hour, "how long a stop waits for requests in flight", func(c *Config) *time.Duration { return &c.Relay.Drain }),
	seconds("tombstone-in-seconds", "86400", time.Second, 365*24*time.Hour, "how long a message that is done is remembered, with its response", func(c *Config) *time.Duration { return &c.Relay.Tombstone }),
	number("relay", "max-response-bytes", "262144", 0, 4<<20, "bytes of a response that are kept; the rest is cut off", func(c *Config) *int { return &c.Relay.MaxResponse }),
	seconds("poll-deadline-in-seconds", "86400", time.Second, 365*24*time.Hour, "how long a status endpoint is asked for a response", func(c *Config) *time.Duration { return &c.Relay.PollDeadline }),
	seconds("callback-deadline-in-seconds", "86400", time.Second, 365*24*time.Hour, "how long a sender is called that does not answer with 2xx", func(c *Config) *time.Duration { return &c.Relay.CallbackDeadline }),
	seconds("callback-timeout-in-seconds", "30", 10*time.Millisecond, time.Hour, "time that a callback to a sender may take in all", func(c *Config) *time.Duration { return &c.Relay.CallbackTimeout }),
	{
		Section: "relay", Key: "auto-redrive-in-seconds", Default: "600,3600",
		Help:  "waits before a message that failed for want of a working receiver or sender is redriven by itself; empty: never",
		apply: applyRedrive,
	},
	text("relay", "networks", "auto", "where receivers and callbacks may be: public, any, networks such as 10.0.0.0/8 that are allowed beside the public ones, or auto, which is any behind a loopback listener and public otherwise", func(c *Config) *string { return &c.Relay.Networks }),

	text("nats", "url", "", "existing NATS server or cluster; empty runs one in this process", func(c *Config) *string { return &c.NATS.URL }),
	text("nats", "creds", "", "credentials file for it", func(c *Config) *string { return &c.NATS.Creds }),
	text("nats", "store-dir", "relay-data", "folder of the embedded server", func(c *Config) *string { return &c.NATS.StoreDir }),
	text("nats", "name", "relay", "front part of the names of streams and subjects", func(c *Config) *string { return &c.NATS.Name }),
	number("nats", "replicas", "1", 1, 5, "copies of each stream", func(c *Config) *int { return &c.NATS.Replicas }),
	text("nats", "sync", "2m", "when the embedded server syncs writes to disk: each, one by one before it is answered, or an interval such as 2m", func(c *Config) *string { return &c.NATS.Sync }),

	text("sentry", "dsn", "", "Sentry project that errors are reported to; empty: the log only", func(c *Config) *string { return &c.Sentry.DSN }),
}

func text(section, key, def, help string, field func(*Config) *string) Setting {
	return Setting{Section: section, Key: key, Default: def, Help: help, apply: func(c *Config, value string) error {
		*field(c) = value
		return nil
	}}
}

func number(section, key, def string, least, most int, help string, field func(*Config) *int) Setting {
	return Setting{Section: section, Key: key, Default: def, Help: help, apply: func(c *Config, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q is not a whole number from %d to %d", value, least, most)
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

// seconds is a duration of section relay, as a number of seconds that may have a fraction.
func seconds(key, def string, least, most time.Duration, help string, field func(*Config) *time.Duration) Setting {
	return Setting{Section: "relay", Key: key, Default: def, Help: help, apply: func(c *Config, value string) error {
		d, err := parseSeconds(value)
		if err != nil || d < least || d > most {
			return fmt.Errorf("%q is not a number of seconds from %g to %g", value, least.Seconds(), most.Seconds())
		}
		*field(c) = d
		return nil
	}}
}

func parseSeconds(value string) (time.Duration, error) {
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(n) || n < 0 || n > (100*365*24*time.Hour).Seconds() {
		return 0, fmt.Errorf("%q is not a number of seconds", value)
	}
	return time.Duration(n * float64(time.Second)), nil
}

func applyRedrive(c *Config, value string) error {
	var waits []time.Duration
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		d, err := parseSeconds(part)
		if err != nil {
			return err
		}
		waits = append(waits, d)
	}
	c.Relay.AutoRedrive = waits
	return nil
}
