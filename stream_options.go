package jetpull

import "github.com/nats-io/nats.go/jetstream"

func (s *streamSettings) validate(c call, cfg *jetstream.ConsumerConfig, own map[string]bool) error {
	return nil
}
