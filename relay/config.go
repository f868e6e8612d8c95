package relay

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpserve"
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

// HTTPConfig configures the listener.
type HTTPConfig struct {
	Listener     string // the address to listen on; 127.0.0.1:8080 by default
	MaxBodyBytes int    // the maximum size of a message's body, up to 8 MiB; 1 MiB by default
	// PerAddress is the maximum number of connections from one address. 0 means no limit. The default is 1,024.
	PerAddress int
	// Proxies are the addresses and networks of reverse proxies. The client of a request from one is the last other address in X-Forwarded-For.
	// They have no limit of connections. X-Forwarded-Prefix of one is in front of the paths that the client sees.
	Proxies []string
	// PublicURL is the URL by which clients reach the listener, such as https://example.com/relay. If it is empty, it is the URL that they
	// use, or that a trusted proxy says.
	PublicURL string
	// Open allows an address other than loopback without an admin token.
	Open bool
	// OpenMetrics serves the metrics without a token.
	OpenMetrics bool
}

// LogConfig configures the log.
type LogConfig struct {
	Filename string // the file to log to; empty: standard error
	Level    string // debug, info (the default), warn or error
}

// AdminConfig configures the administration of the relay.
type AdminConfig struct {
	// Token is the admin token. Empty means that requests need none: see HTTPConfig.Open.
	Token string
	// MaxFailed is the maximum number of requests with a wrong token from one address in a minute. Beyond it, all its requests with an admin
	// token are refused until the minute is over. 0 means no limit. The default is 60.
	MaxFailed int
}

// WorkConfig configures the delivery of messages. [Settings] documents its fields, in section relay.
type WorkConfig = work.Rules

// NATSConfig configures the NATS server that stores the state.
type NATSConfig struct {
	// URL is that of an existing server, or several with commas. Empty means a server in this process.
	URL      string
	Creds    string // the file with the credentials for an existing server; empty: none
	StoreDir string // the folder of the embedded server; relay-data by default
	Name     string // the first part of the names of streams and subjects; relay by default
	Replicas int    // the copies of each stream, 1 (the default) to 5
	// Sync is when messages are synced to disk: always (the default) and each before the answer, for several messages at a time or for one
	// write, or at an interval.
	Sync string
}

// SentryConfig has the DSN of the Sentry project that errors are reported to. Empty means that they are only logged.
type SentryConfig struct{ DSN string }

// DefaultConfig returns the configuration in which every setting has its default.
func DefaultConfig() *Config { return schema.New() }

// Sources are the sources of a configuration. A later one overrides an earlier one: the file, then the environment, then flags.
type Sources = service.Sources

// LoadConfig reads and validates a configuration. The error names every key that is unknown or has an invalid value. In the checks of other
// keys, an invalid value counts as its default.
func LoadConfig(from Sources) (*Config, error) {
	c := DefaultConfig()
	if err := errors.Join(schema.Load(c, from, c.ReadINI), c.Validate()); err != nil {
		return nil, err
	}
	return c, nil
}

// ReadINI sets the fields for which an INI file has keys, and leaves the others. Its error names every key that is unknown or invalid.
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
	var errs []error
	named := func(name string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %w", name, err))
		}
	}
	_, sync := natsembed.ParseSync(c.NATS.Sync)
	_, policy := c.Relay.Policy(c.HTTP.Listener)
	_, public := httpserve.ParsePublicURL(c.HTTP.PublicURL)
	named("[nats] sync:", sync)
	named("[relay]", policy)
	named("[http] public-url:", public)
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
		named("[relay] event-url:", webhook.CheckURL(c.Relay.EventURL))
	}
	errs = append(errs, service.CheckListener(c.HTTP.Listener, "change receivers and send", c.Admin.Token, c.HTTP.Open))
	return errors.Join(errs...)
}
