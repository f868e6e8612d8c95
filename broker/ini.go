package broker

import (
	"errors"
	"fmt"
	"slices"

	"gopkg.in/ini.v1"

	"github.com/jetpull/jetpull/internal/service"
)

// The sections of the INI file that are not settings.
const (
	sectionChannels       = "initial-channels"
	sectionChannelTokens  = "initial-channel-tokens"
	sectionProducers      = "initial-producers"
	sectionProducerTokens = "initial-producer-tokens"
	sectionConsumers      = "initial-consumers"
	sectionDatabase       = "rdbms"
)

// DefaultConfig returns the configuration in which every setting has its default. It has no Seed.
func DefaultConfig() *Config { return schema.New() }

// Sources are the sources of a configuration. Later ones override earlier ones: the file, then the environment, then the flags.
type Sources = service.Sources

// LoadConfig reads and validates a configuration. If no file lists objects to create and there is no admin token, Seed contains a sample channel,
// producer and consumer. The error names every key that is unknown or has an invalid value.
func LoadConfig(from Sources) (*Config, error) {
	c := DefaultConfig()
	if err := schema.Load(c, from, c.ReadINI); err != nil {
		return nil, err
	}
	if !c.seeded {
		c.seedSamples()
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// ReadINI sets the fields for which data has keys, and leaves the others unchanged. Its error names every key that is unknown or invalid.
func (c *Config) ReadINI(data []byte) error {
	file, err := service.ParseINI(data)
	if err != nil {
		return err
	}
	c.seeded = slices.ContainsFunc(file.SectionStrings(), isSeedSection)
	consumers := file.Section(sectionConsumers)
	return errors.Join(schema.Read(c, file, func(section *ini.Section) error {
		switch name := section.Name(); {
		case name == sectionDatabase:
			c.warn("[rdbms] is accepted for compatibility and has no effect: there is no database")
		case consumers.HasKey(name):
			return checkConsumerSection(section)
		case !isSeedSection(name):
			return fmt.Errorf("[%s]: no such section, and no consumer of that name in [%s]", name, sectionConsumers)
		}
		return nil
	}), c.readSeed(file))
}

func isSeedSection(name string) bool {
	return slices.Contains([]string{sectionChannels, sectionChannelTokens, sectionProducers, sectionProducerTokens, sectionConsumers}, name)
}

// SampleConfig returns a configuration file that sets every key to its default and creates a sample channel, producer and consumer.
func SampleConfig() string { return schema.Sample("Configuration of the webhook broker") + sampleSeed }

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
