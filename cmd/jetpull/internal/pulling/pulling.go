// Package pulling implements jetpull fetch, and contains its parts that other commands use: flags, the Subscription, and the output of messages.
package pulling

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/internal/wire"
)

// Flags are the flags for priority groups, for creating a missing stream or consumer, and for the output.
type Flags struct {
	Raw, Null bool // print payloads alone, with a line end or a zero byte after each

	group                               string
	minPending, minAckPending, priority int
	subjects                            []string
}

// Register adds the flags to a command.
func (f *Flags) Register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.Raw, "raw", false, "print the payloads alone, a line each")
	flags.BoolVar(&f.Null, "print0", false, "print the payloads alone, byte for byte, each with a zero byte after it: see publish --null")
	flags.StringVar(&f.group, "group", "", "priority `GROUP` to pull in; a consumer with groups needs one")
	cli.Int(flags, &f.minPending, "min-pending", 0, 1, math.MaxInt, "pull only while at least `N` messages are pending (overflow)")
	cli.Int(flags, &f.minAckPending, "min-ack-pending", 0, 1, math.MaxInt, "pull only while at least `N` messages are unacknowledged (overflow)")
	cli.Int(flags, &f.priority, "priority", 0, 0, 9, "`PRIORITY` of the pulls, 0 first to 9 last (prioritized)")
	flags.StringSliceVar(&f.subjects, "create", nil, "create the stream with these `SUBJECTS`, and the durable consumer, if they do not exist")
	cli.Checked(flags, "group", func() error { return service.Named("--group", wire.ValidGroup(f.group)) })
	cli.Checked(flags, "create", func() error {
		if len(f.subjects) == 0 {
			return errors.New("--create is empty; name the subjects of the stream")
		}
		for _, s := range f.subjects {
			if !server.IsValidSubject(s) {
				return fmt.Errorf("--create %q is not a subject", s)
			}
		}
		return nil
	})
}

// Pull is a Subscription to a consumer, and its connection.
type Pull struct {
	*client.Link
	Sub *jetpull.Subscription
}

// Open connects and subscribes to the consumer that args name. With --create, it creates a missing stream or consumer.
func (f *Flags) Open(cmd *cobra.Command, g *client.Globals, args []string) (*Pull, error) {
	l, err := g.Target.Open(cmd.Context(), cmd.Name(), cli.Log(cmd.ErrOrStderr(), cli.JSON(cmd)))
	if err != nil {
		return nil, err
	}
	p := &Pull{Link: l}
	err = l.Within(cmd.Context(), func(ctx context.Context) (err error) {
		if len(f.subjects) > 0 {
			err = f.create(ctx, cmd, l, args[0], args[1])
		}
		if err != nil {
			return err
		}
		p.Sub, err = jetpull.Subscribe(ctx, l.JS, args[0], args[1], cli.Given(cmd.Flags(), map[string]jetpull.SubscribeOption{
			"group":           jetpull.Group(f.group),
			"min-pending":     jetpull.MinPending(int64(f.minPending)),
			"min-ack-pending": jetpull.MinAckPending(int64(f.minAckPending)),
			"priority":        jetpull.Priority(f.priority),
		})...)
		return err
	})
	if err != nil {
		l.Close()
		return nil, err
	}
	return p, nil
}

// Close hands back unused messages, even after an interrupt, and closes the connection.
func (p *Pull) Close(ctx context.Context) error {
	defer p.Link.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Timeout)
	defer cancel()
	return p.Sub.Close(ctx)
}

// create creates a missing stream, on disk, and a missing consumer, with the server's defaults. It does not change existing ones. With a group,
// it returns an error for a missing consumer, because the new consumer would not have the group.
func (f *Flags) create(ctx context.Context, cmd *cobra.Command, l *client.Link, stream, consumer string) error {
	_, err := l.JS.Consumer(ctx, stream, consumer)
	noConsumer := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
	if noConsumer && f.group != "" {
		return cli.Usage(fmt.Errorf("--group %q: there is no consumer %q on stream %q, and --create would make it without groups", f.group, consumer,
			stream))
	}
	over, err := l.EnsureStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: f.subjects})
	if err != nil {
		return err
	}
	slices.Sort(over)
	slices.Sort(f.subjects)
	if over != nil && !slices.Equal(over, f.subjects) {
		cli.Warn(cmd.ErrOrStderr(), cli.JSON(cmd),
			fmt.Sprintf("stream %q exists and is not changed: it has the subjects %q, not %q", stream, over, f.subjects))
	}
	if noConsumer {
		_, err = l.JS.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy})
	}
	if err != nil {
		return fmt.Errorf("create consumer %q on stream %q: %w", consumer, stream, err)
	}
	return nil
}

// ErrOutput is the error of a failed write to standard output. A run cannot continue, and a message that was not written is not done.
var ErrOutput = errors.New("write the output")

// Printer writes messages, each with one unbuffered Write, so that messages do not mix and are written before they are acknowledged. Its methods
// are safe for concurrent use.
type Printer struct {
	JSON, Raw, Null bool // the format; none: text

	mu  sync.Mutex
	out io.Writer
}

// NewPrinter returns a Printer on out.
func NewPrinter(out io.Writer) *Printer { return &Printer{out: out} }

// Print writes a message.
func (p *Printer) Print(m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	switch {
	case p.JSON:
		err = cli.WriteJSON(&text, Message{
			Stream: meta.Stream, Consumer: meta.Consumer, Domain: meta.Domain, Subject: m.Subject(),
			StreamSeq: meta.Sequence.Stream, ConsumerSeq: meta.Sequence.Consumer,
			Delivered: meta.NumDelivered, Pending: meta.NumPending, Time: meta.Timestamp.UTC(),
			Headers: m.Headers(), Payload: cli.PayloadOf(m.Data()),
		})
	case p.Null && bytes.IndexByte(m.Data(), 0) >= 0:
		return fmt.Errorf("%w: the payload of message %d has a zero byte, which --print0 cannot print: use --json", ErrOutput, meta.Sequence.Stream)
	case p.Null:
		text.Write(m.Data())
		text.WriteByte(0)
	case p.Raw:
		fmt.Fprintf(&text, "%s\n", m.Data())
	default:
		writeText(&text, m, meta)
	}
	if err == nil {
		_, err = p.Write(text.Bytes())
	}
	return err
}

// Write writes whole lines.
func (p *Printer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, err := p.out.Write(b)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrOutput, err)
	}
	return n, err
}

// Message is a message as --json prints it.
type Message struct {
	Stream      string      `json:"stream"`
	Consumer    string      `json:"consumer"`
	Domain      string      `json:"domain,omitempty"`
	Subject     string      `json:"subject"`
	StreamSeq   uint64      `json:"stream_seq"`
	ConsumerSeq uint64      `json:"consumer_seq"`
	Delivered   uint64      `json:"delivered"`
	Pending     uint64      `json:"pending"`
	Time        time.Time   `json:"time"`
	Headers     nats.Header `json:"headers,omitempty"`
	cli.Payload
}

// writeText writes a message as text: a line with its sequence, subject and payload, and a line for each header.
func writeText(out *bytes.Buffer, m jetstream.Msg, meta *jetstream.MsgMetadata) {
	fmt.Fprintf(out, "[%d] %s", meta.Sequence.Stream, progress.Readable(m.Subject()))
	if meta.NumDelivered > 1 {
		fmt.Fprintf(out, " (delivery %d)", meta.NumDelivered)
	}
	fmt.Fprintf(out, ": %s\n", progress.Readable(string(m.Data())))
	for _, name := range slices.Sorted(maps.Keys(m.Headers())) {
		for _, value := range m.Headers()[name] {
			fmt.Fprintf(out, "    %s: %s\n", progress.Readable(name), progress.Readable(value))
		}
	}
}

type fetch struct {
	*client.Globals
	Flags
	count        int
	wait         time.Duration
	noWait, fill bool
	settle       string
}

// NewFetch returns the command fetch.
func NewFetch(g *client.Globals) *cobra.Command {
	f := &fetch{Globals: g}
	cmd := &cobra.Command{
		Use:   "fetch STREAM CONSUMER",
		Short: "Fetch messages once, print and acknowledge them",
		Long: `fetch gets up to --count messages with one pull, prints them, and then settles
them.

It returns the available messages. If there are none, it waits for the first one, up
to --wait. With --fill it waits for all --count messages, up to --wait. With --no-wait
it never waits. It exits with 4 if no message, or with --fill fewer messages than
--count, arrived in time, and with 3 if --no-wait finds no message.`,
		Example: `  jetpull fetch ORDERS worker --count 10
  jetpull fetch ORDERS worker --settle nak --json | jq .data`,
		RunE: f.run,
	}
	flags := cmd.Flags()
	flags.IntVarP(&f.count, "count", "n", 1, "get `N` messages at most")
	flags.DurationVarP(&f.wait, "wait", "w", 5*time.Second, "how long to wait for the first message, or with --fill for all messages")
	flags.BoolVar(&f.noWait, "no-wait", false, "get only messages that are available now")
	flags.BoolVar(&f.fill, "fill", false, "wait until all --count messages have arrived")
	cli.OneOf(flags, &f.settle, "settle", "ack", "reply to each printed message: ack, nak, term or none", "ack", "nak", "term", "none")
	cli.Range(flags, "count", &f.count, 1, math.MaxInt32)
	cli.Range(flags, "wait", &f.wait, time.Millisecond, cli.MaxLong)
	f.Flags.Register(cmd)
	cli.Exclusive(cmd, "wait", "no-wait")
	cli.Exclusive(cmd, "fill", "no-wait")
	return cmd
}

// settlers settle a message, by the values of --settle. For ack there is none, because all messages are acknowledged together, with confirmation.
var settlers = map[string]func(*jetpull.Msg) error{
	"ack": nil, "nak": (*jetpull.Msg).Nak, "term": (*jetpull.Msg).Term, "none": func(*jetpull.Msg) error { return nil },
}

func (f *fetch) run(cmd *cobra.Command, args []string) (err error) {
	ctx := cmd.Context()
	p, err := f.Open(cmd, f.Globals, args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	wait := []jetpull.FetchOption{jetpull.MaxWait(f.wait)}
	switch {
	case f.noWait:
		wait[0] = jetpull.NoWait()
	case f.fill:
		wait = append(wait, jetpull.FillBatch())
	}
	msgs, err := p.Sub.Fetch(ctx, f.count, wait...)
	if ctx.Err() != nil && err != nil {
		return cli.ErrInterrupted
	}
	if err != nil {
		return p.Explain(ctx, err)
	}
	BoundPipe(cmd.OutOrStdout())
	printer := NewPrinter(cmd.OutOrStdout())
	printer.JSON, printer.Raw, printer.Null = cli.JSON(cmd), f.Raw, f.Null
	for i, m := range msgs {
		if err := printer.Print(m); err != nil {
			return errors.Join(err, f.settleAll(ctx, p, msgs[:i]), each(msgs[i:], (*jetpull.Msg).Nak))
		}
	}
	if err := f.settleAll(ctx, p, msgs); err != nil {
		return err
	}
	if f.fill && len(msgs) < f.count {
		return fmt.Errorf("%w: %d of %d came within %v", cli.ErrShort, len(msgs), f.count, f.wait)
	}
	return nil
}

// settleAll settles the printed messages as --settle specifies. When it returns nil, the server has confirmed acknowledgements, so that exit
// code 0 means done.
func (f *fetch) settleAll(ctx context.Context, p *Pull, msgs []*jetpull.Msg) error {
	if settle := settlers[f.settle]; settle != nil {
		return each(msgs, settle)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.Timeout)
	defer cancel()
	info, err := p.Sub.Info(ctx)
	if err != nil || info.Config.AckPolicy == jetstream.AckNonePolicy {
		return err
	}
	return jetpull.ConfirmAcks(ctx, msgs...)
}

func each(msgs []*jetpull.Msg, do func(*jetpull.Msg) error) error {
	var errs []error
	for _, m := range msgs {
		errs = append(errs, do(m))
	}
	return errors.Join(errs...)
}
