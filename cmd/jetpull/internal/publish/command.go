package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/names"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/internal/wire"
)

type publishFlags struct {
	count, size int
	headers     []string
	create      string
}

// New returns the command publish.
func New(g *client.Globals) *cobra.Command {
	f := &publishFlags{}
	cmd := &cobra.Command{
		Use:   "publish SUBJECT [BODY]",
		Short: "Publish messages to a stream, and wait until it has them",
		Long: `publish stores messages in the stream over SUBJECT. Without BODY it reads that from
standard input, and publishes it as it is. SUBJECT and BODY are templates:
{{.Count}} is the number of the message, {{.Time}} and {{.UnixNano}} are when it is
made, {{.Random 10}} are ten letters.`,
		Example: `  jetpull publish orders.new '{"id":{{.Count}}}' --count 1000
  jetpull publish 'orders.{{.Random 2}}' x --size 1024 --create ORDERS --embedded ./data`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return cli.Usage(fmt.Errorf("publish wants a subject and a body, not %d arguments %q", len(args), args))
			}
			if !strings.Contains(args[0], "{{") && !names.IsSubject(args[0], false) {
				return cli.Usage(fmt.Errorf("%q is not a subject to publish to", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runPublish(cmd, g, f, args) },
	}
	flags := cmd.Flags()
	flags.IntVarP(&f.count, "count", "n", 1, "publish `N` messages")
	flags.IntVar(&f.size, "size", 0, "fill each payload up to `BYTES`")
	cli.Range(flags, "count", &f.count, 1, math.MaxInt)
	cli.Range(flags, "size", &f.size, 0, math.MaxInt32)
	cli.HeaderFlag(flags, &f.headers)
	flags.StringVar(&f.create, "create", "", "make the stream `NAME` over the subject's first token and all below, if it is missing")
	return cmd
}

// plan is what flags and arguments say.
func (f *publishFlags) plan(cmd *cobra.Command, args []string) (*Plan, error) {
	p := &Plan{Count: f.count, Size: f.size}
	for _, h := range f.headers {
		name, value, err := cli.Header(h)
		if err != nil {
			return nil, err
		}
		if p.Header == nil {
			p.Header = nats.Header{}
		}
		p.Header.Add(name, value)
	}
	if f.create != "" {
		if err := names.Check("stream", f.create); err != nil {
			return nil, err
		}
	}
	var err error
	if p.Subject, err = Template("subject", args[0]); err != nil {
		return nil, cli.Usage(err)
	}
	if len(args) == 2 {
		if p.Body, err = Template("body", args[1]); err != nil {
			return nil, cli.Usage(err)
		}
		return p, nil
	}
	body, err := io.ReadAll(cmd.InOrStdin())
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	p.Body = Verbatim(body)
	return p, nil
}

func runPublish(cmd *cobra.Command, g *client.Globals, f *publishFlags, args []string) error {
	p, err := f.plan(cmd, args)
	if err != nil {
		return err
	}
	l, err := g.Target.Open(cmd.Context(), "publish", cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer l.Close()
	if err := f.makeStream(cmd.Context(), l, args[0]); err != nil {
		return err
	}
	var bar *progress.Bar
	if f.count > 1 && !g.Quiet && !g.JSON {
		bar = progress.New(cmd.ErrOrStderr(), "publish", int64(f.count))
	}
	begin := time.Now()
	n, err := p.Publish(cmd.Context(), l.JS, func() { bar.Add(1) })
	took := time.Since(begin)
	bar.Clear()
	switch {
	case cmd.Context().Err() != nil:
		return fmt.Errorf("%w after %d messages", cli.ErrInterrupted, n)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("no stream is over the subject; make one with --create NAME: %w", err)
	case err != nil:
		return err
	case g.JSON:
		return cli.WriteJSON(cmd.OutOrStdout(), struct {
			Published int     `json:"published"`
			Seconds   float64 `json:"seconds"`
		}{n, took.Seconds()})
	case !g.Quiet:
		cli.Tell(cmd.ErrOrStderr(), "%s published in %s, %s msg/s\n", progress.Count(n), progress.Short(took), progress.Count(progress.Rate(int64(n), took)))
	}
	return nil
}

// makeStream makes the stream that --create names, if it is missing.
func (f *publishFlags) makeStream(ctx context.Context, l *client.Link, subject string) error {
	if f.create == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	first, _, more := strings.Cut(subject, ".")
	if more {
		first += ".>"
	}
	s, err := l.JS.Stream(ctx, f.create)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		_, err = l.JS.CreateStream(ctx, jetstream.StreamConfig{Name: f.create, Subjects: []string{first}})
	case err == nil && !strings.Contains(subject, "{{"):
		over := s.CachedInfo().Config.Subjects
		if !slices.ContainsFunc(over, func(filter string) bool { return wire.Matches(filter, subject) }) {
			return fmt.Errorf("stream %q is there already, over %q, not over %s; name another with --create", f.create, over, subject)
		}
	}
	if err != nil {
		return fmt.Errorf("create stream %q over %q: %w", f.create, first, err)
	}
	return nil
}
