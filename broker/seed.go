package broker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"gopkg.in/ini.v1"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/webhook"
)

// SeedData lists the objects that a start creates if they do not exist.
type SeedData struct {
	Channels  []SeedItem
	Producers []SeedItem
	Consumers []SeedConsumer
	// Skipped lists the consumers that were skipped, with the reasons.
	Skipped []string `json:",omitempty"`
}

// SeedItem is a channel or producer. If Token is empty, the broker generates one.
type SeedItem struct {
	ID    string
	Name  string
	Token string `json:"-"`
}

// ConsumerType is how jobs reach a consumer.
type ConsumerType = domain.ConsumerType

// The types of consumers.
const (
	Push = domain.Push // the broker POSTs them to its callback
	Pull = domain.Pull // its workers claim them
)

// SeedConsumer is a consumer. Channel is the ID of its channel. Type is [Push] or [Pull].
type SeedConsumer struct {
	SeedItem
	CallbackURL string
	Channel     string
	Type        ConsumerType
}

// shown returns the data without secrets. The query of a callback URL may contain secrets.
func (s SeedData) shown() SeedData {
	s.Consumers = slices.Clone(s.Consumers)
	for i := range s.Consumers {
		s.Consumers[i].CallbackURL = mask.URL(s.Consumers[i].CallbackURL)
	}
	return s
}

// seedSamples adds the objects that the original creates without a configuration. Its documentation broadcasts to them. If there is an admin token,
// seedSamples adds none, because the tokens of these objects are public.
func (c *Config) seedSamples() {
	if c.Admin.Token != "" {
		return
	}
	_ = c.ReadINI([]byte(sampleSeed)) // a test reads it too
	// The consumer in the sample file works without a receiver. The original's does not.
	c.Seed.Consumers[0].CallbackURL, c.Seed.Consumers[0].Type = "http://sample-endpoint/webhook-receiver", Push
	if loopback, _ := service.Loopback(c.HTTP.Listener); !loopback {
		c.Warnings = append(c.Warnings, "sample-channel, sample-producer and sample-consumer are made, with tokens that everybody knows: say under "+
			"[initial-channels] what is to be made, or leave it empty")
	}
}

func (c *Config) readSeed(file *ini.File) error {
	channels, err1 := seedItems(file, sectionChannels, sectionChannelTokens)
	producers, err2 := seedItems(file, sectionProducers, sectionProducerTokens)
	c.Seed.Channels, c.Seed.Producers = channels, producers
	var errs []error
	for _, key := range file.Section(sectionConsumers).Keys() {
		if schema.Has(key.Name()) {
			errs = append(errs, fmt.Errorf("[%s] %s: a consumer cannot be called that, it is a section of its own", sectionConsumers, key.Name()))
			continue
		}
		consumer, err := seedConsumer(file, key, channels)
		if err != nil {
			c.Seed.Skipped = append(c.Seed.Skipped, fmt.Sprintf("[%s] %s is skipped: %v", sectionConsumers, key.Name(), err))
			continue
		}
		c.Seed.Consumers = append(c.Seed.Consumers, consumer)
	}
	return errors.Join(append(errs, err1, err2)...)
}

func seedItems(file *ini.File, section, tokens string) ([]SeedItem, error) {
	var items []SeedItem
	for _, key := range file.Section(section).Keys() {
		items = append(items, SeedItem{ID: key.Name(), Name: key.String(), Token: file.Section(tokens).Key(key.Name()).String()})
	}
	var errs []error
	for _, key := range file.Section(tokens).Keys() {
		if !slices.ContainsFunc(items, func(i SeedItem) bool { return i.ID == key.Name() }) {
			errs = append(errs, fmt.Errorf("[%s] %s: there is no such key in [%s]", tokens, key.Name(), section))
		}
	}
	return items, errors.Join(errs...)
}

func seedConsumer(file *ini.File, key *ini.Key, channels []SeedItem) (SeedConsumer, error) {
	section, err := file.GetSection(key.Name())
	if err != nil {
		return SeedConsumer{}, fmt.Errorf("it has no section [%s]", key.Name())
	}
	kind, err := domain.ParseConsumerType(section.Key("type").String())
	if err != nil {
		return SeedConsumer{}, err
	}
	channel := section.Key("channel").String()
	if !slices.ContainsFunc(channels, func(i SeedItem) bool { return i.ID == channel }) {
		return SeedConsumer{}, fmt.Errorf("its channel %q is not in [%s]", channel, sectionChannels)
	}
	if err := webhook.CheckURL(key.String()); err != nil {
		return SeedConsumer{}, err
	}
	return SeedConsumer{
		SeedItem:    SeedItem{ID: key.Name(), Name: key.Name(), Token: section.Key("token").String()},
		CallbackURL: key.String(), Channel: channel, Type: kind,
	}, nil
}

// validate refuses values that cannot be sent in an HTTP header or are too long. The error does not show tokens.
func (s *SeedData) validate() error {
	var errs []error
	check := func(what, text string) {
		if err := cmp.Or(domain.CheckSent(text), domain.CheckSize(text, domain.MaxText)); err != nil {
			errs = append(errs, fmt.Errorf("%s cannot be used: %w", what, err))
		}
	}
	for _, i := range s.Channels {
		check("["+sectionChannelTokens+"] "+i.ID+": the token", i.Token)
	}
	for _, i := range s.Producers {
		check(fmt.Sprintf("[%s] %q: the ID", sectionProducers, i.ID), i.ID)
		check("["+sectionProducerTokens+"] "+i.ID+": the token", i.Token)
	}
	for _, c := range s.Consumers {
		check("["+c.ID+"] token: the token", c.Token)
	}
	return errors.Join(errs...)
}

func checkConsumerSection(section *ini.Section) error {
	var errs []error
	for _, key := range section.Keys() {
		if !slices.Contains([]string{"token", "channel", "type"}, key.Name()) {
			errs = append(errs, fmt.Errorf("[%s] %s: a consumer has token, channel and type only", section.Name(), key.Name()))
		}
	}
	return errors.Join(errs...)
}

func (s SeedData) objects() (producers []domain.Producer, channels []domain.Channel, consumers []domain.Consumer) {
	for _, item := range s.Producers {
		producers = append(producers, domain.Producer{Stakeholder: item.stakeholder()})
	}
	for _, item := range s.Channels {
		channels = append(channels, domain.Channel{Stakeholder: item.stakeholder()})
	}
	for _, item := range s.Consumers {
		consumers = append(consumers, domain.Consumer{
			Stakeholder: item.stakeholder(), Channel: item.Channel, CallbackURL: item.CallbackURL,
			Type: item.Type,
		})
	}
	return producers, channels, consumers
}

func (i SeedItem) stakeholder() domain.Stakeholder {
	return domain.Stakeholder{ID: i.ID, Name: i.Name, Token: i.Token}
}
