// Package infocmd implements the commands that show streams, consumers, their workers and sets of partitions, and that change the delivery of a
// consumer.
package infocmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/internal/service/progress"
)

// Commands returns the commands.
func Commands(g *client.Globals) []*cobra.Command {
	return []*cobra.Command{newInfo(g), newUnpin(g), newConsumers(g), newStreams(g), newPs(g), newCancel(g), newPartition(g)}
}

func newInfo(g *client.Globals) *cobra.Command {
	var watching bool
	var interval time.Duration
	once := g.With(func(ctx context.Context, l *client.Link, cmd *cobra.Command, args []string) error {
		s, err := look(ctx, l, args)
		if err != nil {
			return err
		}
		return cli.Show(cmd, s)
	})
	cmd := &cobra.Command{
		Use:   "info STREAM CONSUMER",
		Short: "Show a consumer: pending, unacknowledged, redelivered, pins, rates",
		Long: `info shows the state of a consumer, as the server reports it. With --watch it
repeats this every --interval until it is interrupted, with rates per second. While
the server does not answer it reports that and goes on. It ends when the consumer is
deleted.`,
		Example: `  jetpull info ORDERS worker
  jetpull info ORDERS worker --watch
  jetpull info ORDERS worker --watch --json > states.jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !watching && cmd.Flags().Changed("interval") {
				return cli.Usage(errors.New("--interval belongs to --watch"))
			}
			if watching {
				return watch(cmd, g, interval, args)
			}
			return once(cmd, args)
		},
	}
	cmd.Flags().BoolVarP(&watching, "watch", "w", false, "show the state every --interval, until interrupted")
	cli.Interval(cmd.Flags(), &interval)
	return cmd
}

func look(ctx context.Context, l *client.Link, args []string) (*state, error) {
	info, err := infoOf(ctx, l.JS, args[0], args[1])
	if err != nil {
		return nil, fmt.Errorf("consumer %q on stream %q: %w", args[1], args[0], err)
	}
	return new(observe(info, time.Now())), nil
}

// watch shows a consumer at each interval until interrupted, with its rates since the previous look.
func watch(cmd *cobra.Command, g *client.Globals, interval time.Duration, args []string) error {
	var before *state
	return g.Watch(cmd, interval, func(ctx context.Context, l *client.Link) error {
		s, err := look(ctx, l, args)
		if err != nil {
			return err
		}
		if before != nil {
			s.Rates = between(*before, *s)
		}
		before = s
		return cli.Answer(cmd, s, "%s", s.view())
	})
}

// infoOf requests the info of a pull or push consumer.
func infoOf(ctx context.Context, js jetstream.JetStream, stream, consumer string) (*jetstream.ConsumerInfo, error) {
	var c interface {
		CachedInfo() *jetstream.ConsumerInfo
	}
	c, err := js.Consumer(ctx, stream, consumer)
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		c, err = js.PushConsumer(ctx, stream, consumer)
	}
	if err != nil {
		return nil, err
	}
	return c.CachedInfo(), nil
}

// state is the state of a consumer at one moment, with the part of its configuration that explains the numbers.
type state struct {
	Stream      string     `json:"stream"`
	Consumer    string     `json:"consumer"`
	Time        time.Time  `json:"time"`
	PushTo      string     `json:"push_to,omitempty"` // a subject; empty for a pull consumer
	Filter      []string   `json:"filter,omitempty"`
	AckPolicy   string     `json:"ack_policy"`
	AckWait     float64    `json:"ack_wait,omitempty"` // in seconds
	MaxPending  int        `json:"max_ack_pending,omitempty"`
	MaxDeliver  int        `json:"max_deliver,omitempty"`
	Pending     uint64     `json:"pending"`
	AckPending  int        `json:"ack_pending"`
	Redelivered int        `json:"redelivered"`
	Waiting     int        `json:"waiting_pulls"`
	Delivered   position   `json:"delivered"`
	AckFloor    position   `json:"ack_floor"`
	Paused      bool       `json:"paused"`
	PauseUntil  *time.Time `json:"pause_until,omitempty"`
	Pins        []pin      `json:"pins,omitempty"`
	Rates       *rates     `json:"rates,omitempty"`
}

type position struct {
	Consumer uint64     `json:"consumer_seq"`
	Stream   uint64     `json:"stream_seq"`
	Last     *time.Time `json:"last,omitempty"`
}

// pin is the client to which a priority group is pinned.
type pin struct {
	Group string     `json:"group"`
	ID    string     `json:"id,omitempty"`
	Since *time.Time `json:"since,omitempty"`
}

// observe returns the state in a consumer's info.
func observe(info *jetstream.ConsumerInfo, now time.Time) state {
	c := info.Config
	s := state{
		Stream: info.Stream, Consumer: info.Name, Time: now.UTC(), PushTo: c.DeliverSubject, Filter: c.FilterSubjects,
		AckPolicy: strings.ToLower(strings.TrimPrefix(c.AckPolicy.String(), "Ack")), MaxPending: max(0, c.MaxAckPending), MaxDeliver: max(0, c.MaxDeliver),
		Pending: info.NumPending, AckPending: info.NumAckPending,
		Redelivered: info.NumRedelivered, Waiting: info.NumWaiting, Paused: info.Paused,
		Delivered: position(info.Delivered), AckFloor: position(info.AckFloor),
	}
	if info.Paused {
		s.PauseUntil = c.PauseUntil
	}
	if c.FilterSubject != "" {
		s.Filter = []string{c.FilterSubject}
	}
	if c.AckPolicy != jetstream.AckNonePolicy {
		s.AckWait = c.AckWait.Seconds()
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

// rates are changes per second between two states of a consumer.
type rates struct {
	Delivered float64 `json:"delivered"`
	Acked     float64 `json:"acked"`
	Pending   float64 `json:"pending"`
}

// between returns the rates between two states. It returns nil if no time has passed, or if the consumer was recreated in between. A message that
// was delivered and is no longer ack pending counts as acknowledged; the ack floor would wait for the oldest message. Redeliveries are not new
// messages, so the number of new messages is at most the advance of the stream sequence.
func between(before, after state) *rates {
	took := after.Time.Sub(before.Time).Seconds()
	if took <= 0 || after.Delivered.Consumer < before.Delivered.Consumer || after.AckFloor.Consumer < before.AckFloor.Consumer {
		return nil
	}
	delivered := float64(after.Delivered.Consumer - before.Delivered.Consumer)
	first := min(delivered, float64(after.Delivered.Stream)-float64(before.Delivered.Stream))
	return &rates{
		Delivered: delivered / took,
		Acked:     max(0, first-float64(after.AckPending-before.AckPending)) / took,
		Pending:   (float64(after.Pending) - float64(before.Pending)) / took,
	}
}

// view formats the state for a terminal with ten lines of 40 columns. Values that change come first.
func (s *state) view() string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-13s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "%s  %s > %s\n", s.Time.Local().Format(time.TimeOnly), s.Stream, s.Consumer)
	r, trend := cmp.Or(s.Rates, &rates{}), ""
	if s.Rates != nil {
		trend = fmt.Sprintf("  %+.0f/s", r.Pending)
	}
	row("delivered", "%.0f/s", r.Delivered)
	row("acknowledged", "%.0f/s", r.Acked)
	row("pending", "%s%s", progress.Count(s.Pending), trend)
	row("ack pending", "%s of %s", progress.Count(s.AckPending), cmp.Or(strings.TrimPrefix(progress.Count(s.MaxPending), "0"), "any number"))
	row("redelivered", "%s", progress.Count(s.Redelivered))
	row("waiting pulls", "%s", progress.Count(s.Waiting))
	if s.PauseUntil != nil {
		row("paused until", "%s", s.PauseUntil.Local().Format(time.DateTime))
	}
	for _, p := range s.Pins {
		row("pin of "+p.Group, "%s", cmp.Or(p.ID, "nobody"))
	}
	return b.String()
}

type stream struct {
	Name      string    `json:"stream"`
	Subjects  []string  `json:"subjects,omitempty"`
	Messages  uint64    `json:"messages"`
	Bytes     uint64    `json:"bytes"`
	Consumers int       `json:"consumers"`
	First     uint64    `json:"first_seq"`
	Last      uint64    `json:"last_seq"`
	LastTime  time.Time `json:"last_time,omitzero"`
	Storage   string    `json:"storage"`
	Retention string    `json:"retention"`
	Replicas  int       `json:"replicas"`
	MaxAge    float64   `json:"max_age"` // in seconds; 0: no limit
}

func shownStream(info *jetstream.StreamInfo) stream {
	c, s := info.Config, info.State
	return stream{
		c.Name, c.Subjects, s.Msgs, s.Bytes, s.Consumers, s.FirstSeq, s.LastSeq, s.LastTime, strings.ToLower(c.Storage.String()),
		strings.ToLower(c.Retention.String()), c.Replicas, c.MaxAge.Seconds(),
	}
}

func newStreams(g *client.Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "streams", Short: "List the streams, or show one"}
	cmd.AddCommand(&cobra.Command{
		Use: "ls", Short: "List the streams", Example: `  jetpull streams ls`,
		RunE: g.With(func(ctx context.Context, l *client.Link, cmd *cobra.Command, _ []string) error {
			list := l.JS.ListStreams(ctx)
			return cli.List(cmd, []string{"stream", "subjects", ">messages", ">bytes", ">consumers", "last_time"},
				cli.Map(listed(list.Info(), list.Err), shownStream))
		}),
	}, &cobra.Command{
		Use: "info STREAM", Short: "Show a stream", Example: `  jetpull streams info ORDERS`,
		RunE: g.With(func(ctx context.Context, l *client.Link, cmd *cobra.Command, args []string) error {
			s, err := l.JS.Stream(ctx, args[0])
			if err != nil {
				return fmt.Errorf("stream %q: %w", args[0], err)
			}
			return cli.Show(cmd, shownStream(s.CachedInfo()))
		}),
	})
	return cmd
}

func newList(g *client.Globals) *cobra.Command {
	return &cobra.Command{
		Use: "ls STREAM", Short: "List the consumers of a stream", Example: `  jetpull consumers ls ORDERS`,
		RunE: g.With(func(ctx context.Context, l *client.Link, cmd *cobra.Command, args []string) error {
			s, err := l.JS.Stream(ctx, args[0])
			if err != nil {
				return fmt.Errorf("stream %q: %w", args[0], err)
			}
			list, now := s.ListConsumers(ctx), time.Now()
			return cli.List(cmd, []string{"consumer", "filter", ">pending", ">ack_pending", ">redelivered", ">waiting_pulls", "paused"},
				cli.Map(listed(list.Info(), list.Err), func(info *jetstream.ConsumerInfo) state { return observe(info, now) }))
		}),
	}
}

// listed returns the objects that the server lists, as a sequence that ends with the error, if any.
func listed[I any](infos <-chan *I, failed func() error) iter.Seq2[*I, error] {
	return func(yield func(*I, error) bool) {
		for info := range infos {
			if !yield(info, nil) {
				return
			}
		}
		if err := failed(); err != nil {
			yield(nil, err)
		}
	}
}
