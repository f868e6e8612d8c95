// Package infocmd is the commands that look at a consumer, and move its pin.
package infocmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/names"
	"github.com/jetpull/jetpull/internal/progress"
)

type infoFlags struct {
	watch    bool
	interval time.Duration
	count    int
}

const minInterval = 100 * time.Millisecond

// New returns the command info.
func New(g *client.Globals) *cobra.Command {
	f := &infoFlags{}
	cmd := &cobra.Command{
		Use:   "info STREAM CONSUMER",
		Short: "Show a consumer: pending, unacknowledged, redelivered, pins, rates",
		Long: `info shows what the server says of a consumer. With --watch it goes on showing
it, with rates and with each switch of a pin: in place on a terminal, and as
lines elsewhere.`,
		Example: `  jetpull info ORDERS worker
  jetpull info ORDERS worker --watch
  jetpull info ORDERS worker --watch --json --count 60 > minute.jsonl`,
		Args: names.StreamAndConsumer,
		RunE: func(cmd *cobra.Command, args []string) error { return runInfo(cmd, g, f, args[0], args[1]) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.watch, "watch", "w", false, "go on until interrupted")
	flags.DurationVarP(&f.interval, "interval", "i", time.Second, "how often to ask, with --watch")
	flags.IntVarP(&f.count, "count", "n", 0, "end --watch after `N` times; 0 for never")
	return cmd
}

func (f *infoFlags) check(cmd *cobra.Command) error {
	flags := cmd.Flags()
	switch {
	case !f.watch && (flags.Changed("interval") || flags.Changed("count")):
		return cli.Usage(errors.New("--interval and --count belong to --watch"))
	case f.interval < minInterval:
		return cli.Usage(fmt.Errorf("--interval %v is less than %v", f.interval, minInterval))
	case f.count < 0:
		return cli.Usage(fmt.Errorf("--count %d is less than 0", f.count))
	}
	return nil
}

func runInfo(cmd *cobra.Command, g *client.Globals, f *infoFlags, stream, consumer string) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	errOut := cmd.ErrOrStderr()
	if f.watch && !g.JSON && progress.IsTerminal(cmd.OutOrStdout()) && progress.IsTerminal(errOut) {
		// The view says it when the connection is lost, and a line in between would
		// shift what is drawn.
		errOut = io.Discard
	}
	l, err := g.Target.OpenExisting(cmd.Context(), "info", errOut)
	if err != nil {
		return err
	}
	defer l.Close()
	if f.watch {
		return runWatch(cmd, g, f, l, stream, consumer)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), g.Target.Timeout)
	defer cancel()
	info, err := consumerInfo(ctx, l.JS, stream, consumer)
	if err != nil {
		return err
	}
	s := observe(info, time.Now())
	if g.JSON {
		return cli.WriteJSON(cmd.OutOrStdout(), s)
	}
	return printInfo(cmd.OutOrStdout(), info, s)
}

// consumerInfo asks for the info of a consumer of any kind.
func consumerInfo(ctx context.Context, js jetstream.JetStream, stream, consumer string) (*jetstream.ConsumerInfo, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("stream %q: %w", stream, err)
	}
	c, err := s.Consumer(ctx, consumer)
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		push, pushErr := s.PushConsumer(ctx, consumer)
		if pushErr != nil {
			return nil, fmt.Errorf("consumer %q on stream %q: %w", consumer, stream, pushErr)
		}
		return push.CachedInfo(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %q on stream %q: %w", consumer, stream, err)
	}
	return c.CachedInfo(), nil
}

// state is a consumer at one moment, as --json prints it.
type state struct {
	Stream      string    `json:"stream"`
	Consumer    string    `json:"consumer"`
	Time        time.Time `json:"time"`
	Pending     uint64    `json:"pending"`
	AckPending  int       `json:"ack_pending"`
	Redelivered int       `json:"redelivered"`
	Waiting     int       `json:"waiting_pulls"`
	Delivered   position  `json:"delivered"`
	AckFloor    position  `json:"ack_floor"`
	Paused      bool      `json:"paused,omitempty"`
	Pins        []pin     `json:"pins,omitempty"`
	Rates       *rates    `json:"rates,omitempty"`
}

type position struct {
	Consumer uint64     `json:"consumer_seq"`
	Stream   uint64     `json:"stream_seq"`
	Last     *time.Time `json:"last,omitempty"`
}

type pin struct {
	Group string     `json:"group"`
	ID    string     `json:"id,omitempty"`
	Since *time.Time `json:"since,omitempty"`
}

func observe(info *jetstream.ConsumerInfo, now time.Time) state {
	s := state{
		Stream: info.Stream, Consumer: info.Name, Time: now.UTC(),
		Pending: info.NumPending, AckPending: info.NumAckPending,
		Redelivered: info.NumRedelivered, Waiting: info.NumWaiting, Paused: info.Paused,
		Delivered: position{info.Delivered.Consumer, info.Delivered.Stream, info.Delivered.Last},
		AckFloor:  position{info.AckFloor.Consumer, info.AckFloor.Stream, info.AckFloor.Last},
	}
	for _, g := range info.PriorityGroups {
		p := pin{Group: g.Group, ID: g.PinnedClientID}
		if !g.PinnedTS.IsZero() && p.ID != "" {
			p.Since = &g.PinnedTS
		}
		s.Pins = append(s.Pins, p)
	}
	return s
}

func printInfo(out io.Writer, info *jetstream.ConsumerInfo, s state) error {
	rows := [][2]string{
		{"consumer", s.Consumer + " on stream " + s.Stream},
		{"kind", kindOf(info)},
	}
	if filters := filtersOf(info); filters != "" {
		rows = append(rows, [2]string{"filter", filters})
	}
	rows = append(rows, stateRows(s)...)
	return printRows(out, rows)
}

// stateRows are the lines that change.
func stateRows(s state) [][2]string {
	rows := [][2]string{
		{"pending", progress.Count(s.Pending)},
		{"ack pending", progress.Count(s.AckPending)},
		{"redelivered", progress.Count(s.Redelivered)},
		{"waiting pulls", progress.Count(s.Waiting)},
		{"delivered", positionText(s.Delivered, s.Time)},
		{"ack floor", positionText(s.AckFloor, s.Time)},
	}
	if s.Paused {
		rows = append(rows, [2]string{"paused", "yes"})
	}
	for _, p := range s.Pins {
		rows = append(rows, [2]string{"pin of " + p.Group, pinText(p, s.Time)})
	}
	return rows
}

func positionText(p position, now time.Time) string {
	text := fmt.Sprintf("%s (stream sequence %s)", progress.Count(p.Consumer), progress.Count(p.Stream))
	if p.Last != nil {
		text += ", last " + ago(*p.Last, now)
	}
	return text
}

func pinText(p pin, now time.Time) string {
	switch {
	case p.ID == "":
		return "nobody"
	case p.Since == nil:
		return p.ID
	}
	return p.ID + ", since " + ago(*p.Since, now)
}

// ago rounds the time since then for a reader. Clocks of two machines differ, so it
// is never negative.
func ago(then, now time.Time) string {
	d := max(0, now.Sub(then))
	switch {
	case d < time.Minute:
		d = d.Round(100 * time.Millisecond)
	case d < time.Hour:
		d = d.Round(time.Second)
	default:
		d = d.Round(time.Minute)
	}
	return d.String() + " ago"
}

func kindOf(info *jetstream.ConsumerInfo) string {
	c := info.Config
	kind := []string{"pull"}
	if c.DeliverSubject != "" {
		kind[0] = "push to " + c.DeliverSubject
	}
	if c.Durable == "" {
		kind = append(kind, "ephemeral")
	}
	kind = append(kind, "ack "+strings.ToLower(strings.TrimPrefix(c.AckPolicy.String(), "Ack")))
	if c.AckPolicy != jetstream.AckNonePolicy {
		kind = append(kind, "ack wait "+c.AckWait.String())
		if c.MaxAckPending > 0 {
			kind = append(kind, fmt.Sprintf("at most %s unacknowledged", progress.Count(c.MaxAckPending)))
		}
	}
	if c.MaxDeliver > 0 {
		kind = append(kind, fmt.Sprintf("at most %d deliveries", c.MaxDeliver))
	}
	return strings.Join(kind, ", ")
}

func filtersOf(info *jetstream.ConsumerInfo) string {
	if f := info.Config.FilterSubject; f != "" {
		return f
	}
	return strings.Join(info.Config.FilterSubjects, ", ")
}

func printRows(out io.Writer, rows [][2]string) error {
	width := 0
	for _, r := range rows {
		width = max(width, len(r[0]))
	}
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%-*s  %s\n", width, r[0], progress.Readable(r[1]))
	}
	_, err := io.WriteString(out, b.String())
	return err
}
