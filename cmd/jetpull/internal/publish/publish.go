// Package publish implements jetpull publish.
package publish

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/internal/wire"
)

type plan struct {
	subject     string
	body        func(n int) []byte
	header      nats.Header
	count, size int // the number of messages, and the size of payloads in bytes, padded with spaces; 0: the body's size
	create      string
	lines, null bool // each line of standard input is a message, or each part that a zero byte ends
	force       bool // allow subjects of the server
	schedule    schedule
}

// New returns the command publish.
func New(g *client.Globals) *cobra.Command {
	p := &plan{header: nats.Header{}}
	cmd := &cobra.Command{
		Use:   "publish SUBJECT [BODY]",
		Short: "Publish messages to a stream, and wait until they are stored",
		Long: `publish publishes to SUBJECT, and waits until the stream has stored the messages.
Without BODY it publishes its standard input as one message, with --lines each line as
a message, or with --null what is before each zero byte. In SUBJECT and BODY, {{.Count}}
is the number of the message.

With --at, --every or --cron the stream stores a schedule on --schedule SUBJECT, and
publishes the message when it is due. To end the schedule, delete the message on that
subject. If a consumer covers both subjects, it also receives the schedule: use a filter.

With --create NAME and --count 0 it creates the stream and publishes nothing.`,
		Example: `  jetpull publish orders.new '{"id":{{.Count}}}' --count 1000
  jetpull publish 'orders.{{.Count}}' x --size 1024 --create ORDERS --embedded ./data
  jetpull publish orders.new --lines < orders.jsonl
  jetpull publish reports.due daily --cron '0 0 6 * * *' --schedule reports.daily --create REPORTS`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return cli.Usage(fmt.Errorf("usage: %s, but the arguments are %q", cmd.UseLine(), args))
			}
			if first := numbered(args[0], 1); strings.Contains(first, "{{") || !server.IsValidPublishSubject(first) {
				return cli.Usage(fmt.Errorf("%q is not a subject to publish to", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.run(cmd, g, args) },
	}
	flags := cmd.Flags()
	flags.IntVarP(&p.count, "count", "n", 1, "publish `N` messages")
	cli.Range(flags, "count", &p.count, 0, math.MaxInt)
	cli.Int(flags, &p.size, "size", 0, 0, math.MaxInt32, "fill each payload up to `BYTES`")
	cli.HeaderFlag(flags, p.header.Add)
	flags.BoolVar(&p.lines, "lines", false, "publish each line of standard input")
	flags.BoolVar(&p.null, "null", false, "publish what is before each zero byte of standard input, as fetch --print0 prints it")
	cli.Exclusive(cmd, "lines", "null")
	flags.BoolVar(&p.force, "force", false, "publish to a subject that begins with $ too, on which the server may act")
	p.schedule.register(cmd)
	flags.StringVar(&p.create, "create", "", "create the stream `NAME` if it does not exist, for the subject's first token and all subjects below it")
	cli.Checked(flags, "create", func() error { return cli.CheckName("stream", p.create) })
	return cmd
}

// complete completes the plan from the arguments and standard input.
func (p *plan) complete(cmd *cobra.Command, args []string) (err error) {
	p.subject = args[0]
	_, err = p.address(1)
	if err := cmp.Or(err, p.schedule.check(args[0], p.count), p.checkLines(cmd, args)); err != nil {
		return cli.Usage(err)
	}
	if p.count == 0 || p.lines || p.null {
		return nil // no body
	}
	if len(args) == 2 {
		p.body = func(n int) []byte { return []byte(numbered(args[1], n)) }
		return nil
	}
	body, err := cli.ArgumentOrInput(cmd, nil, 0)
	p.body = func(int) []byte { return bytes.Clone(body) }
	return err
}

// checkLines returns an error for flags that exclude --lines or --null, and for --count 0 if it would do nothing.
func (p *plan) checkLines(cmd *cobra.Command, args []string) error {
	switch {
	case p.count == 0 && p.create == "":
		return errors.New("--count 0 publishes nothing: give --create NAME too, to make a stream")
	case !p.lines && !p.null:
		return nil
	case len(args) == 2 || cmd.Flags().Changed("count") || p.size > 0 || p.schedule.given():
		return errors.New("with --lines and --null the messages are on standard input: give no body, --count, --size or schedule")
	case strings.Contains(args[0], counter):
		return fmt.Errorf("with --lines and --null all messages go to one subject, and %q has %s", args[0], counter)
	}
	return nil
}

func (p *plan) run(cmd *cobra.Command, g *client.Globals, args []string) error {
	if err := p.complete(cmd, args); err != nil {
		return err
	}
	l, err := g.Target.Open(cmd.Context(), "publish", cli.Log(cmd.ErrOrStderr(), cli.JSON(cmd)))
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.Within(cmd.Context(), func(ctx context.Context) error { return p.makeStream(ctx, l, args[0]) }); err != nil {
		return err
	}
	if p.schedule.given() {
		err := l.Within(cmd.Context(), func(ctx context.Context) error { return p.schedule.store(ctx, l.JS, p) })
		return p.report(cmd, g, 1, 0, err)
	}
	var bar *progress.Bar
	if p.count > 1 || p.lines || p.null {
		bar = g.Bar(cmd, int64(p.count))
	}
	begin, messages := time.Now(), p.counted
	if p.lines || p.null {
		messages = p.parts(cli.Input(cmd))
	}
	n, err := publish(cmd.Context(), l, messages, func() { bar.Add(1) })
	took := time.Since(begin)
	bar.Clear()
	return p.report(cmd, g, n, took, l.Explain(cmd.Context(), err))
}

func (p *plan) report(cmd *cobra.Command, g *client.Globals, n int, took time.Duration, err error) error {
	switch {
	case cmd.Context().Err() != nil:
		return fmt.Errorf("%w after %s", cli.ErrInterrupted, progress.Plural(n, "message"))
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("no stream stores subject %q; create one with --create NAME: %w", cmd.Flags().Arg(0), err)
	case err != nil:
		return err
	case cli.JSON(cmd):
		return cli.WriteJSON(cmd.OutOrStdout(), map[string]any{"published": n, "seconds": took.Seconds()})
	case g.Quiet || p.count == 0:
	case p.schedule.given():
		cli.Notice(cmd.ErrOrStderr(), "scheduled under %s\n", p.schedule.under)
	default:
		cli.Notice(cmd.ErrOrStderr(), "%s published in %s, %s msg/s\n", progress.Count(n), progress.Short(took),
			progress.Count(progress.Rate(int64(n), took)))
	}
	return nil
}

// makeStream creates the stream that --create names, if it is missing.
func (p *plan) makeStream(ctx context.Context, l *client.Link, subject string) error {
	if p.create == "" {
		return nil
	}
	first, _, more := strings.Cut(subject, ".")
	if more {
		first += ".>"
	}
	over, err := l.EnsureStream(ctx, jetstream.StreamConfig{Name: p.create, Subjects: []string{first}, AllowMsgSchedules: p.schedule.given()})
	if err != nil || over == nil || strings.Contains(subject, counter) {
		return err
	}
	if !slices.ContainsFunc(over, func(filter string) bool { return wire.Matches(filter, subject) }) {
		return fmt.Errorf("stream %q is there already, over %q, not over %s; name another with --create", p.create, over, subject)
	}
	return nil
}

// counted is a sequence of --count messages.
func (p *plan) counted(yield func(*nats.Msg, error) bool) {
	for i := range p.count {
		m, err := p.message(i + 1)
		if !yield(m, err) || err != nil {
			return
		}
	}
}

func (p *plan) message(n int) (*nats.Msg, error) {
	subject, err := p.address(n)
	if err != nil {
		return nil, err
	}
	body := p.body(n)
	if fill := p.size - len(body); fill > 0 {
		body = append(body, bytes.Repeat([]byte{' '}, fill)...)
	}
	return &nats.Msg{Subject: subject, Header: p.header, Data: body}, nil
}

// address returns the subject of message n. Subjects of the server need --force, because it acts on them: $JS.API.STREAM.PURGE.ORDERS purges ORDERS.
func (p *plan) address(n int) (string, error) {
	subject := numbered(p.subject, n)
	for _, s := range []string{subject, p.schedule.under} {
		if strings.HasPrefix(s, "$") && !p.force {
			return "", fmt.Errorf("subject %s belongs to the server, which may act on the message: add --force if that is what you want", s)
		}
	}
	return subject, nil
}

// counter is replaced by the number of the message, in SUBJECT and BODY.
const counter = "{{.Count}}"

func numbered(text string, n int) string { return strings.ReplaceAll(text, counter, strconv.Itoa(n)) }

const (
	// longestLine is the maximum payload of --lines in bytes. It is also the maximum that a server can be configured for.
	longestLine = 64 << 20
	// ahead is the maximum number of unconfirmed messages. It is below the limit of nats.go, at which publishing blocks.
	ahead = 2048
)

// parts returns a message for each line of a reader, or for each part that a zero byte ends.
func (p *plan) parts(in io.Reader) iter.Seq2[*nats.Msg, error] {
	return func(yield func(*nats.Msg, error) bool) {
		subject, _ := p.address(1) // complete has checked the subject
		scan := bufio.NewScanner(in)
		scan.Buffer(make([]byte, 0, 64<<10), longestLine)
		if p.null {
			scan.Split(splitNull)
		}
		n := 0
		for ; scan.Scan(); n++ {
			if !yield(&nats.Msg{Subject: subject, Header: p.header, Data: bytes.Clone(scan.Bytes())}, nil) {
				return
			}
		}
		if scan.Err() != nil {
			yield(nil, fmt.Errorf("read message %d: %w", n+1, scan.Err()))
		}
	}
}

// splitNull is a [bufio.SplitFunc] that splits at zero bytes. The last part need not end with one.
func splitNull(data []byte, atEnd bool) (advance int, token []byte, err error) {
	if end := bytes.IndexByte(data, 0); end >= 0 {
		return end + 1, data[:end:end], nil
	}
	if atEnd && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// publish publishes messages, and returns the number of confirmed messages. After an error, unconfirmed messages may be stored.
func publish(ctx context.Context, l *client.Link, messages iter.Seq2[*nats.Msg, error], done func()) (confirmed int, err error) {
	var sent []jetstream.PubAckFuture // unconfirmed messages
	confirm := func(left int) error {
		for ; len(sent) > left; sent = sent[1:] {
			select {
			case <-sent[0].Ok():
			case err := <-sent[0].Err():
				return fmt.Errorf("message %d: %w", confirmed+1, err)
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-l.Allowed.Done():
				return context.Cause(l.Allowed)
			case <-time.After(l.Timeout):
				return fmt.Errorf("no stream confirmed a message for %v; those that were not confirmed may be stored", l.Timeout)
			}
			confirmed++
			done()
		}
		return nil
	}
	for m, err := range messages {
		if err == nil {
			err = confirm(ahead - 1)
		}
		if err != nil {
			return confirmed, err
		}
		f, err := l.JS.PublishMsgAsync(m)
		if err != nil {
			return confirmed, fmt.Errorf("publish message %d to %s: %w", confirmed+len(sent)+1, m.Subject, err)
		}
		sent = append(sent, f)
	}
	err = confirm(0)
	return confirmed, err
}
