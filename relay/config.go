package relay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"gopkg.in/ini.v1"
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
	// Open allows an address other than loopback without an admin token.
	Open bool
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
	for _, s := range settings {
		if err := s.Apply(c, s.Default); err != nil {
			// A test applies every default, so this cannot happen.
			panic(err)
		}
	}
	return c
}

// Sources is where a configuration comes from. What comes later wins: the file, then the environment, then flags.
type Sources struct {
	// File is the path of an INI file, or empty.
	File string
	// Env looks up an environment variable, as os.LookupEnv does.
	Env func(name string) (string, bool)
	// Flags are the values of the flags that were given, by name.
	Flags map[string]string
}

// LoadConfig reads and checks a configuration. Its error names every key that is unknown or has a bad value.
func LoadConfig(from Sources) (*Config, error) {
	c := DefaultConfig()
	var errs []error
	if from.File != "" {
		data, err := os.ReadFile(from.File)
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		if err := c.ReadINI(data); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", from.File, err))
		}
	}
	for _, s := range settings {
		if from.Env != nil {
			if value, ok := from.Env(s.Env()); ok {
				if err := s.Apply(c, value); err != nil {
					errs = append(errs, fmt.Errorf("environment variable %s: %w", s.Env(), err))
				}
			}
		}
		if value, ok := from.Flags[s.Flag()]; ok {
			if err := s.Apply(c, value); err != nil {
				errs = append(errs, fmt.Errorf("flag --%s: %w", s.Flag(), err))
			}
		}
	}
	if len(errs) == 0 {
		errs = append(errs, c.Validate())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// ReadINI applies an INI file to the configuration.
func (c *Config) ReadINI(data []byte) error {
	file, err := ini.LoadSources(ini.LoadOptions{}, data)
	if err != nil {
		return fmt.Errorf("not an INI file: %w", err)
	}
	known := map[string]map[string]Setting{}
	for _, s := range settings {
		if known[s.Section] == nil {
			known[s.Section] = map[string]Setting{}
		}
		known[s.Section][s.Key] = s
	}
	var errs []error
	for _, section := range file.Sections() {
		keys := known[section.Name()]
		if keys == nil && (section.Name() != ini.DefaultSection || len(section.Keys()) > 0) {
			errs = append(errs, fmt.Errorf("[%s]: no such section", section.Name()))
			continue
		}
		for _, key := range section.Keys() {
			s, ok := keys[key.Name()]
			if !ok {
				errs = append(errs, fmt.Errorf("[%s] %s: no such key", section.Name(), key.Name()))
				continue
			}
			errs = append(errs, s.Apply(c, key.String()))
		}
	}
	return errors.Join(errs...)
}

// SampleConfig is a configuration file with every key at its default.
func SampleConfig() string {
	var b strings.Builder
	b.WriteString("# Configuration of the webhook relay. Every key can be given as a flag, --section-key,\n" +
		"# and as an environment variable, JETPULL_RELAY_SECTION_KEY.\n")
	section := ""
	for _, s := range settings {
		if s.Section != section {
			section = s.Section
			fmt.Fprintf(&b, "\n[%s]\n", section)
		}
		fmt.Fprintf(&b, "# %s\n%s = %s\n", s.Help, s.Key, s.Default)
	}
	return b.String()
}

var streamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// Validate checks what one key alone cannot.
func (c *Config) Validate() error {
	var errs []error
	if _, _, err := c.NATS.parseSync(); err != nil {
		errs = append(errs, err)
	}
	if !streamName.MatchString(c.NATS.Name) {
		errs = append(errs, fmt.Errorf("[nats] name: %q is not made of up to 32 letters, digits, - and _", c.NATS.Name))
	}
	if c.NATS.URL == "" && c.NATS.Replicas > 1 {
		errs = append(errs, fmt.Errorf("[nats] replicas: %d needs a cluster: give its url, or use 1", c.NATS.Replicas))
	}
	if c.NATS.URL == "" && c.NATS.Creds != "" {
		errs = append(errs, fmt.Errorf("[nats] creds: %q is for an existing server: give its url", c.NATS.Creds))
	}
	if _, _, err := parseNetworks(c.Relay.Networks); err != nil {
		errs = append(errs, err)
	}
	if loopback, err := c.HTTP.loopback(); err != nil {
		errs = append(errs, err)
	} else if !loopback && c.Admin.Token == "" && !c.HTTP.Open {
		errs = append(errs, fmt.Errorf("[http] listener: %s can be reached from other machines, and anybody could change receivers and send: set [admin] token, listen on 127.0.0.1, or set [http] open to true", c.HTTP.Listener))
	}
	return errors.Join(errs...)
}

// parseSync reads Sync.
func (c *NATSConfig) parseSync() (each bool, every time.Duration, err error) {
	if c.Sync == "each" {
		return true, 0, nil
	}
	every, err = time.ParseDuration(c.Sync)
	if err != nil || every < 10*time.Millisecond {
		return false, 0, fmt.Errorf("[nats] sync: %q is neither each nor a duration of at least 10ms, such as 2m", c.Sync)
	}
	return false, every, nil
}

func (c *HTTPConfig) loopback() (bool, error) {
	host, _, err := net.SplitHostPort(c.Listener)
	if err != nil {
		return false, fmt.Errorf("[http] listener: %q is not host:port, such as 127.0.0.1:8080", c.Listener)
	}
	if host == "localhost" {
		return true, nil
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback(), nil
}

// parseNetworks reads where requests may go: a mode, or networks that are allowed beside the public ones.
func parseNetworks(s string) (mode string, allowed []netip.Prefix, err error) {
	switch s {
	case "auto", "public", "any":
		return s, nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return "", nil, fmt.Errorf("[relay] networks: %q is neither auto, public, any nor a network such as 10.0.0.0/8", part)
		}
		allowed = append(allowed, p)
	}
	return "public", allowed, nil
}
