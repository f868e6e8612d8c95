package relay

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/relay/internal/work"
)

// Config is the configuration of a relay process. [Settings] lists the name of each field in the INI file, on the command line and in the
// environment, with its default.
type Config struct {
	HTTP   HTTPConfig
	Log    LogConfig
	Admin  AdminConfig
	Relay  WorkConfig
	NATS   NATSConfig
	Sentry SentryConfig
}

// HTTPConfig configures the listener. [Settings] documents its fields, in section http.
type HTTPConfig = service.HTTP

// LogConfig configures the log. [Settings] documents its fields, in section log.
type LogConfig = service.Log

// AdminConfig configures the administration of the relay. [Settings] documents its fields, in section admin.
type AdminConfig = service.Admin

// WorkConfig configures the delivery of messages. [Settings] documents its fields, in section relay.
type WorkConfig = work.Rules

// NATSConfig configures the NATS server that stores the state. [Settings] documents its fields, in section nats.
type NATSConfig = service.NATS

// SentryConfig has the DSN of the Sentry project to which errors are reported. If it is empty, errors are only logged.
type SentryConfig struct{ DSN string }

// DefaultConfig returns the configuration in which every setting has its default.
func DefaultConfig() *Config { return schema.New() }

// Sources are the sources of a configuration. A later one overrides an earlier one: the file, then the environment, then flags.
type Sources = service.Sources

// LoadConfig reads and validates a configuration. The error names every key that is unknown or has an invalid value. Checks of other keys use the
// default of a key with an invalid value.
func LoadConfig(from Sources) (*Config, error) {
	c := DefaultConfig()
	if err := errors.Join(schema.Load(c, from, c.ReadINI), c.Validate()); err != nil {
		return nil, err
	}
	return c, nil
}

// ReadINI sets the fields for which an INI file has keys, and leaves the others unchanged. Its error names every key that is unknown or invalid.
func (c *Config) ReadINI(data []byte) error {
	file, err := service.ParseINI(data)
	if err != nil {
		return err
	}
	return schema.Read(c, file, service.UnknownSection)
}

// SampleConfig returns a configuration file with every key at its default.
func SampleConfig() string { return schema.Sample("Configuration of the webhook relay") }

var streamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Validate checks the rules that concern several settings. [LoadConfig] and [Start] call it.
func (c *Config) Validate() error {
	_, sync := natsembed.ParseSync(c.NATS.Sync)
	_, policy := c.Relay.Policy("relay", c.HTTP.Listener)
	errs := []error{
		service.Named("[nats] sync", sync), policy, c.HTTP.Check("change receivers and send", c.Admin.Token),
	}
	if !streamName.MatchString(c.NATS.Name) {
		errs = append(errs, fmt.Errorf("[nats] name: %q is not made of up to 32 letters, digits, - and _", c.NATS.Name))
	}
	if c.NATS.URL == "" {
		errs = append(errs, service.CheckEmbedded(c.NATS.Replicas, map[string]string{"creds": c.NATS.Creds}))
	}
	if t := c.Admin.Token; strings.TrimSpace(t) != t || !httpguts.ValidHeaderFieldValue(t) {
		errs = append(errs, errors.New("[admin] token: it has a control character, or a space at an end, which no request can carry: leave it out"))
	}
	if c.Relay.EventURL != "" {
		errs = append(errs, service.Named("[relay] event-url", webhook.CheckURL(c.Relay.EventURL)))
	}
	return errors.Join(errs...)
}

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
}, slices.Concat(service.HTTPSettings("relay", "a message", "1048576", 8<<20, func(c *Config) *service.HTTP { return &c.HTTP }),
	service.LogSettings([]string{"debug", "info", "warn", "error"}, func(c *Config) *LogConfig { return &c.Log }),
	service.AdminSettings("token in Authorization: Bearer that requests for the configuration and for failed messages need; empty: none is needed, "+
		"which is allowed on loopback only", func(c *Config) *AdminConfig { return &c.Admin }), []Setting{
		service.Number("relay", "concurrency", "64", 1, 3584, "maximum messages of one receiver, and callbacks of one sender, in progress at a time",
			func(c *Config) *int { return &c.Relay.Concurrency }),
		service.Duration("relay", "takeover-in-seconds", "5", time.Second, time.Second, time.Hour,
			"seconds after which other processes take over the work of a process that died", func(c *Config) *time.Duration { return &c.Relay.Takeover }),
		service.Duration("relay", "drain-in-seconds", "35", time.Second, 0, time.Hour,
			"maximum seconds to wait for POSTs in flight at shutdown; 0: do not wait", func(c *Config) *time.Duration { return &c.Relay.Drain }),
		service.Duration("relay", "tombstone-in-seconds", "86400", time.Second, time.Second, 365*24*time.Hour,
			"seconds to keep a finished message and its response; until then, a message with the same ID is not delivered again",
			func(c *Config) *time.Duration { return &c.Relay.Tombstone }),
		service.Number("relay", "max-response-bytes", "262144", 0, 4<<20, "maximum bytes of a response to keep; the rest is discarded; 0: none",
			func(c *Config) *int { return &c.Relay.MaxResponse }),
		service.Duration("relay", "poll-deadline-in-seconds", "86400", time.Second, time.Second, 365*24*time.Hour,
			"maximum seconds to poll a status endpoint for a response; after that the message fails",
			func(c *Config) *time.Duration { return &c.Relay.PollDeadline }),
		service.Duration("relay", "callback-deadline-in-seconds", "86400", time.Second, time.Second, 365*24*time.Hour,
			"maximum seconds to retry a callback that gets no 2xx response; after that it goes to the failed list",
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
	}, service.NATSSettings("relay", func(c *Config) *service.NATS { return &c.NATS }), []Setting{
		service.Text("sentry", "dsn", "", "DSN of the Sentry project that errors are reported to; empty: errors are only logged",
			func(c *Config) *string { return &c.Sentry.DSN }),
	})...)

func egress(c *Config) *service.Egress { return &c.Relay.Egress }
