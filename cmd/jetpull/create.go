package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
)

// createFlags make what is missing, so that a first try needs no other tool.
type createFlags struct{ subjects []string }

func (f *createFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.subjects, "create", nil, "make the stream over these `SUBJECTS`, and the durable consumer, if they are missing")
}

// check refuses what no stream could be over.
func (f *createFlags) check(flags *pflag.FlagSet) error {
	if flags.Changed("create") && len(f.subjects) == 0 {
		return cli.Usage(errors.New("--create is empty; name the subjects of the stream"))
	}
	for _, s := range f.subjects {
		if !client.IsSubject(s, true) {
			return cli.Usage(fmt.Errorf("--create %q is not a subject", s))
		}
	}
	return nil
}

// create makes the stream on disk and the consumer with the server's defaults.
// What is there already is left as it is. A group is of no use to a consumer that
// would be made here: nothing is made then.
func (f *createFlags) create(ctx context.Context, l *client.Link, stream, consumer, group string, warn func(string)) error {
	if len(f.subjects) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	_, err := l.JS.Consumer(ctx, stream, consumer)
	noConsumer := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
	if noConsumer && group != "" {
		return cli.Usage(fmt.Errorf("--group %q: there is no consumer %q on stream %q, and --create would make it without groups", group, consumer, stream))
	}
	s, err := l.JS.Stream(ctx, stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		_, err = l.JS.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: f.subjects})
	case err == nil && !sameSubjects(s.CachedInfo().Config.Subjects, f.subjects):
		warn(fmt.Sprintf("stream %q is there already and stays as it is: it is over %q, not over %q", stream, s.CachedInfo().Config.Subjects, f.subjects))
	}
	if err != nil {
		return fmt.Errorf("create stream %q over %q: %w", stream, f.subjects, err)
	}
	if noConsumer {
		_, err = l.JS.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy})
	}
	if err != nil {
		return fmt.Errorf("create consumer %q on stream %q: %w", consumer, stream, err)
	}
	return nil
}

func sameSubjects(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
