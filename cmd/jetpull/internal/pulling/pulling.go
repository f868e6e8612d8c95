// Package pulling is what the commands that pull messages have in common: their flags, the subscription, and how they print
// messages.
package pulling

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/names"
)

// Flags are the terms of a priority group, what to make if it is missing, and how to print.
type Flags struct {
	Raw bool

	group                     string
	minPending, minAckPending int64
	priority                  int
	subjects                  []string
}

// Register adds the flags to a command.
func (f *Flags) Register(flags *pflag.FlagSet) {
	flags.BoolVar(&f.Raw, "raw", false, "print the payloads alone, a line each")
	flags.StringVar(&f.group, "group", "", "priority `GROUP` to pull in; a consumer with groups needs one")
	flags.Int64Var(&f.minPending, "min-pending", 0, "pull only while at least `N` messages are pending (overflow)")
	flags.Int64Var(&f.minAckPending, "min-ack-pending", 0, "pull only while at least `N` messages are unacknowledged (overflow)")
	flags.IntVar(&f.priority, "priority", 0, "`PRIORITY` of the pulls, 0 first to 9 last (prioritized)")
	flags.StringSliceVar(&f.subjects, "create", nil, "make the stream over these `SUBJECTS`, and the durable consumer, if they are missing")
	cli.Checked(flags, "group", func() error { return names.CheckGroup(f.group) })
	cli.Range(flags, "min-pending", &f.minPending, 1, math.MaxInt64)
	cli.Range(flags, "min-ack-pending", &f.minAckPending, 1, math.MaxInt64)
	cli.Range(flags, "priority", &f.priority, 0, 9)
	cli.Checked(flags, "create", f.checkSubjects)
}

// checkSubjects refuses what no stream could be over.
func (f *Flags) checkSubjects() error {
	if len(f.subjects) == 0 {
		return errors.New("--create is empty; name the subjects of the stream")
	}
	for _, s := range f.subjects {
		if !names.IsSubject(s, true) {
			return fmt.Errorf("--create %q is not a subject", s)
		}
	}
	return nil
}

// Pull is a consumer that messages are pulled from.
type Pull struct {
	*client.Link
	Sub *jetpull.Subscription
}

// Open connects, makes what --create names if it is missing, and subscribes to the consumer that args name.
func (f *Flags) Open(cmd *cobra.Command, g *client.Globals, args []string) (*Pull, error) {
	l, err := g.Target.Open(cmd.Context(), cmd.Name(), cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), l.Timeout)
	defer cancel()
	if len(f.subjects) > 0 {
		err = f.create(ctx, l, args[0], args[1], g.Warner(cmd.ErrOrStderr()))
	}
	p := &Pull{Link: l}
	if err == nil {
		p.Sub, err = jetpull.Subscribe(ctx, l.JS, args[0], args[1], cli.Given(cmd.Flags(), map[string]jetpull.Option{
			"group":           jetpull.Group(f.group),
			"min-pending":     jetpull.MinPending(f.minPending),
			"min-ack-pending": jetpull.MinAckPending(f.minAckPending),
			"priority":        jetpull.Priority(f.priority),
		})...)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return p, nil
}

// Close hands back what was not used, even after an interruption, and ends the connection.
func (p *Pull) Close(ctx context.Context) error {
	defer p.Link.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Timeout)
	defer cancel()
	return p.Sub.Close(ctx)
}

// create makes the stream on disk and the consumer with the server's defaults.
// What is there already is left as it is. A group is of no use to a consumer that
// would be made here: nothing is made then.
func (f *Flags) create(ctx context.Context, l *client.Link, stream, consumer string, warn func(string)) error {
	_, err := l.JS.Consumer(ctx, stream, consumer)
	noConsumer := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
	if noConsumer && f.group != "" {
		return cli.Usage(fmt.Errorf("--group %q: there is no consumer %q on stream %q, and --create would make it without groups", f.group, consumer, stream))
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
