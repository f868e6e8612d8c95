package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"
)

// createFlags make what is missing, so that a first try needs no other tool.
type createFlags struct{ subjects []string }

func (f *createFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.subjects, "create", nil, "make the stream over these `SUBJECTS`, and the durable consumer, if they are missing")
}

// create makes the stream on disk and the consumer with the server's defaults.
// What is there already is left as it is.
func (f *createFlags) create(ctx context.Context, l *link, stream, consumer string) error {
	if len(f.subjects) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	_, err := l.js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = l.js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: f.subjects})
	}
	if err != nil {
		return fmt.Errorf("create stream %q over %q: %w", stream, f.subjects, err)
	}
	_, err = l.js.Consumer(ctx, stream, consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		_, err = l.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy})
	}
	if err != nil && !errors.Is(err, jetstream.ErrNotPullConsumer) {
		return fmt.Errorf("create consumer %q on stream %q: %w", consumer, stream, err)
	}
	return nil
}
