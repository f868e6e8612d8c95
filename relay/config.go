package relay

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/webhook"
	"github.com/jetpull/jetpull/relay/internal/work"
)

// Config is the configuration of a relay process. [Settings] lists the name of each field in the INI file, on the command line
// and in the environment.
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
	Listener     string
	MaxBodyBytes int
	// PerAddress is the most connections of one address. 0 means any number.
	PerAddress int
	// Open allows an address other than loopback without an admin token.
	Open bool
	// OpenMetrics serves the metrics without a token.
	OpenMetrics bool
}

// LogConfig configures the log.
type LogConfig struct {
	Filename string
	Level    string
}

// AdminConfig configures the administration of the relay.
type AdminConfig struct {
	// Token is the admin token. Empty means that no request needs a token, which is allowed on loopback only.
	Token string
	// MaxFailed is how many wrong tokens are accepted from an address per minute. After that no admin token is accepted from
	// there. 0 means any number.
	MaxFailed int
}

// WorkConfig configures the workers. [Settings] documents each field.
type WorkConfig = work.Rules

// NATSConfig configures the NATS server that stores the state.
type NATSConfig struct {
	// URL of an existing server. Empty means a server in this process.
	URL      string
	Creds    string
	StoreDir string
	Name     string
	Replicas int
	// Sync is each, or the interval at which the embedded server syncs to disk.
	Sync string
}

// SentryConfig configures where errors are reported.
type SentryConfig struct{ DSN string }

// DefaultConfig returns the configuration without any file, flag or variable.
func DefaultConfig() *Config { return schema.New() }

// Sources are the sources of a configuration. A later one overrides an earlier one: the file, then the environment, then flags.
type Sources = service.Sources

// LoadConfig reads and checks a configuration. The error names every key that is unknown or has a bad value. A value that cannot
// be read counts as its default in the checks of others.
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

// SampleConfig returns a configuration file with every key at its default.
func SampleConfig() string { return schema.Sample("Configuration of the webhook relay") }

var streamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Validate makes the checks that need more than one key.
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
