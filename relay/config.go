package relay

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/webhook"
)

// Config is everything that a relay process can be told. [Settings] names each of its fields in the INI file, on the
// command line and in the environment.
type Config struct {
	HTTP   HTTPConfig
	Log    LogConfig
	Admin  AdminConfig
	Relay  WorkConfig
	NATS   NATSConfig
	Sentry SentryConfig
}

// HTTPConfig is about the listener.
type HTTPConfig struct {
	Listener     string
	MaxBodyBytes int
	// PerAddress is how many connections an address may have; 0: any number.
	PerAddress int
	// Open allows an address other than loopback without an admin token.
	Open bool
	// OpenMetrics lets everybody read the metrics, whatever the admin token.
	OpenMetrics bool
}

// LogConfig is about the log.
type LogConfig struct {
	Filename string
	Level    string
}

// AdminConfig is about who may configure the relay.
type AdminConfig struct {
	// Token is what they show. Empty, on loopback only: everybody may do everything.
	Token string
	// MaxFailed is how many wrong tokens an address may show in a minute before no admin token is accepted from there; 0: any number.
	MaxFailed int
}

// WorkConfig is about the workers.
type WorkConfig struct {
	Concurrency      int
	Takeover         time.Duration
	Drain            time.Duration
	Tombstone        time.Duration
	MaxResponse      int
	PollDeadline     time.Duration
	CallbackDeadline time.Duration
	CallbackTimeout  time.Duration
	AutoRedrive      []time.Duration
	// Networks says where receivers and callbacks may be: auto, public, any, or networks.
	Networks string
	// EventURL gets a request for each event that operators should know of; empty: nobody does.
	EventURL string
}

// NATSConfig is about the server that keeps everything.
type NATSConfig struct {
	// URL of an existing server. Empty means one in this process.
	URL      string
	Creds    string
	StoreDir string
	Name     string
	Replicas int
	// Sync is each, or how often the embedded server syncs to disk.
	Sync string
}

// SentryConfig is about where errors are reported.
type SentryConfig struct{ DSN string }

// DefaultConfig returns the configuration without any file, flag or variable.
func DefaultConfig() *Config {
	c := &Config{}
	schema.Defaults(c)
	return c
}

// Sources is where a configuration comes from. What comes later wins: the file, then the environment, then flags.
type Sources = service.Sources

// LoadConfig reads and checks a configuration. Its error names every key that is unknown or has a bad value; one that cannot
// be read counts with its default in the checks of others.
func LoadConfig(from Sources) (*Config, error) {
	c := DefaultConfig()
	if err := errors.Join(schema.Load(c, from, c.ReadINI), c.Validate()); err != nil {
		return nil, err
	}
	return c, nil
}

// ReadINI applies an INI file to the configuration.
func (c *Config) ReadINI(data []byte) error {
	file, err := service.ParseINI(data)
	if err != nil {
		return err
	}
	return schema.Read(c, file, service.UnknownSection)
}

// SampleConfig is a configuration file with every key at its default.
func SampleConfig() string { return schema.Sample("Configuration of the webhook relay") }

var streamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Validate checks what one key alone cannot.
func (c *Config) Validate() error {
	var errs []error
	if _, _, err := service.ParseSync(c.NATS.Sync, syncEach); err != nil {
		errs = append(errs, err)
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
	if _, _, err := service.ParseNetworks(c.Relay.Networks, c.HTTP.Listener); err != nil {
		errs = append(errs, fmt.Errorf("[relay] %w", err))
	}
	if c.Relay.EventURL != "" {
		if err := webhook.CheckURL(c.Relay.EventURL); err != nil {
			errs = append(errs, fmt.Errorf("[relay] event-url: %w", err))
		}
	}
	errs = append(errs, service.CheckListener(c.HTTP.Listener, "change receivers and send", c.Admin.Token, c.HTTP.Open))
	return errors.Join(errs...)
}

// syncEach has the embedded server sync every single write.
const syncEach = "each"
