package broker

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"gopkg.in/ini.v1"
)

// Sections of the INI file that are not settings.
const (
	sectionChannels       = "initial-channels"
	sectionChannelTokens  = "initial-channel-tokens"
	sectionProducers      = "initial-producers"
	sectionProducerTokens = "initial-producer-tokens"
	sectionConsumers      = "initial-consumers"
	sectionDatabase       = "rdbms"
)

// DefaultConfig returns the configuration without any file, flag or variable.
func DefaultConfig() *Config {
	c := &Config{}
	for _, s := range settings {
		if s.Ignored {
			continue
		}
		if err := s.Apply(c, s.Default); err != nil {
			// A test applies every default, so this cannot happen.
			panic(err)
		}
	}
	return c
}

// Sources is where a configuration comes from. What comes later wins: the file,
// then the environment, then flags.
type Sources struct {
	// File is the path of an INI file, or empty.
	File string
	// Env looks up an environment variable, as os.LookupEnv does.
	Env func(name string) (string, bool)
	// Flags are the values of the flags that were given, by name.
	Flags map[string]string
}

// LoadConfig reads and checks a configuration. Its error names every key that
// is unknown or has a bad value.
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
	c.warnUnused()
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
	consumers := file.Section(sectionConsumers)
	var errs []error
	for _, section := range file.Sections() {
		name := section.Name()
		switch {
		case known[name] != nil && consumers.HasKey(name):
			errs = append(errs, fmt.Errorf("[%s] %s: a consumer cannot be called that, it is a section of its own", sectionConsumers, name))
		case known[name] != nil:
			errs = append(errs, c.applySection(section, known[name]))
		case name == sectionDatabase:
			c.Warnings = append(c.Warnings, "[rdbms] is accepted for compatibility and has no effect: there is no database")
		case isSeedSection(name):
		case consumers.HasKey(name):
			errs = append(errs, checkConsumerSection(section))
		case name == ini.DefaultSection && len(section.Keys()) == 0:
		default:
			errs = append(errs, fmt.Errorf("[%s]: no such section, and no consumer of that name in [%s]", name, sectionConsumers))
		}
	}
	errs = append(errs, c.readSeed(file))
	return errors.Join(errs...)
}

func (c *Config) applySection(section *ini.Section, known map[string]Setting) error {
	var errs []error
	for _, key := range section.Keys() {
		s, ok := known[key.Name()]
		if !ok {
			errs = append(errs, fmt.Errorf("[%s] %s: no such key", section.Name(), key.Name()))
			continue
		}
		errs = append(errs, s.Apply(c, key.String()))
	}
	return errors.Join(errs...)
}

func isSeedSection(name string) bool {
	switch name {
	case sectionChannels, sectionChannelTokens, sectionProducers, sectionProducerTokens, sectionConsumers:
		return true
	}
	return false
}

// SampleConfig is a configuration file with every key at its default, and a
// channel, a producer and a consumer to try.
func SampleConfig() string {
	var b strings.Builder
	b.WriteString("# Configuration of the webhook broker. Every key can be given as a flag, --section-key,\n" +
		"# and as an environment variable, JETPULL_BROKER_SECTION_KEY.\n")
	section := ""
	for _, s := range settings {
		if s.Ignored {
			continue
		}
		if s.Section != section {
			section = s.Section
			fmt.Fprintf(&b, "\n[%s]\n", section)
		}
		fmt.Fprintf(&b, "# %s\n%s = %s\n", s.Help, s.Key, s.Default)
	}
	b.WriteString(sampleSeed)
	return b.String()
}

const sampleSeed = `
# What is made at start, if it is not there: ID = name, and the tokens by ID.
[initial-channels]
sample-channel = Sample Channel

[initial-channel-tokens]
sample-channel = sample-channel-token

[initial-producers]
sample-producer = Sample Producer

[initial-producer-tokens]
sample-producer = sample-producer-token

# ID = callback URL. Each consumer has a section of its own with token, channel
# and type (push or pull).
[initial-consumers]
sample-consumer = http://127.0.0.1:9090/webhook

[sample-consumer]
token = sample-consumer-token
channel = sample-channel
type = pull
`
