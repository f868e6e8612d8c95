package infocmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/internal/running"
	"github.com/jetpull/jetpull/internal/service/progress"
)

func newConsumers(g *client.Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "consumers", Short: "List consumers, or pause, resume or reset one"}
	cmd.AddCommand(newList(g), newPause(g), newResume(g), newReset(g))
	return cmd
}

// outcome is the result of a command. It is printed as a line of JSON.
type outcome struct {
	Stream     string    `json:"stream"`
	Consumer   string    `json:"consumer"`
	Paused     *bool     `json:"paused,omitempty"` // for pause and resume
	PauseUntil time.Time `json:"pause_until,omitzero"`
	ResetTo    uint64    `json:"reset_to,omitempty"` // the first sequence that is redelivered
	Group      string    `json:"group,omitempty"`    // the group that was unpinned
	Unpinned   string    `json:"unpinned,omitempty"` // the pin that was taken, if there was one
}

func newPause(g *client.Globals) *cobra.Command {
	var long time.Duration
	var until time.Time
	cmd := change(g, &cobra.Command{
		Use:   "pause STREAM CONSUMER",
		Short: "Stop deliveries for a time",
		Long: `pause makes the server deliver no message of a consumer until --until, or for the
time of --for. Messages that were delivered can be acknowledged meanwhile. The
consumer resumes by itself, or with jetpull consumers resume.`,
		Example: `  jetpull consumers pause ORDERS worker --for 1h
  jetpull consumers pause ORDERS worker --until 2027-01-31T18:00:00Z`,
	}, func(ctx context.Context, js jetstream.JetStream, args []string, o *outcome) error {
		if until.IsZero() {
			until = time.Now().Add(long)
		}
		r, err := js.PauseConsumer(ctx, args[0], args[1], until)
		if err == nil {
			o.Paused, o.PauseUntil = &r.Paused, r.PauseUntil
		}
		return err
	})
	cli.Duration(cmd.Flags(), &long, "for", 0, time.Second, "pause for a `DURATION` such as 1h, at least 1s")
	cli.Future(cmd.Flags(), &until, "until", "pause until a")
	cli.Exclusive(cmd, "for", "until")
	cmd.MarkFlagsOneRequired("for", "until")
	return cmd
}

func newResume(g *client.Globals) *cobra.Command {
	return change(g, &cobra.Command{
		Use: "resume STREAM CONSUMER", Short: "Resume deliveries", Example: `  jetpull consumers resume ORDERS worker`,
	}, func(ctx context.Context, js jetstream.JetStream, args []string, o *outcome) error {
		r, err := js.ResumeConsumer(ctx, args[0], args[1])
		if err == nil {
			o.Paused = &r.Paused
		}
		return err
	})
}

func newReset(g *client.Globals) *cobra.Command {
	var to int
	cmd := change(g, &cobra.Command{
		Use:   "reset STREAM CONSUMER",
		Short: "Redeliver from the acknowledgement floor, or from a sequence",
		Long: `reset makes the server forget what is pending and what was acknowledged above the
floor, and deliver again from there, in order, with delivery counts that begin at
1. With --to it delivers again from a sequence of the stream. Messages that were
handled can be delivered again. The next sequence of the stream skips all that it
stores. It needs a server 2.14 or later.`,
		Example: `  jetpull consumers reset ORDERS worker
  jetpull consumers reset ORDERS worker --to 1200`,
	}, func(ctx context.Context, js jetstream.JetStream, args []string, o *outcome) error {
		r, err := reset(ctx, js, args[0], args[1], uint64(to))
		if err == nil {
			o.ResetTo = r.ResetSeq
		}
		return err
	})
	cli.Int(cmd.Flags(), &to, "to", 0, 1, math.MaxInt, "deliver again from `SEQUENCE` of the stream; by default from the acknowledgement floor")
	return cmd
}

// reset requests the consumer's info first, because a server does not respond to the reset of a consumer that does not exist.
func reset(ctx context.Context, js jetstream.JetStream, stream, name string, to uint64) (*jetstream.ConsumerResetResponse, error) {
	if _, err := infoOf(ctx, js, stream, name); err != nil {
		return nil, err
	}
	if to == 0 {
		return js.ResetConsumer(ctx, stream, name)
	}
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	// The server accepts any sequence, and delivers no message below it.
	if next := s.CachedInfo().State.LastSeq + 1; to > next {
		return nil, cli.Usage(fmt.Errorf("--to %d is beyond %d, the next message of the stream: messages that are published before %[1]d would not be "+
			"delivered", to, next))
	}
	return js.ResetConsumerToSequence(ctx, stream, name, to)
}

func newUnpin(g *client.Globals) *cobra.Command {
	return change(g, &cobra.Command{
		Use:   "unpin STREAM CONSUMER [GROUP]",
		Short: "Take the pin of a priority group from the client that holds it",
		Long: `unpin takes the pin of a priority group with the pinned_client policy from the
client that holds it, and prints the id of the pin. The server pins another client
with the next message. GROUP can be left out if the consumer has only one group.
With another policy, or without such a group, the command fails and changes nothing.`,
		Example: `  jetpull unpin ORDERS worker
  jetpull unpin ORDERS worker primary`,
	}, func(ctx context.Context, js jetstream.JetStream, args []string, o *outcome) error {
		info, err := infoOf(ctx, js, args[0], args[1])
		if err == nil {
			o.Group, err = pinGroup(info, strings.Join(args[2:], ""))
		}
		if err != nil {
			return err
		}
		for _, state := range info.PriorityGroups {
			if state.Group == o.Group {
				o.Unpinned = state.PinnedClientID
			}
		}
		return jetpull.Unpin(ctx, js, args[0], args[1], o.Group)
	})
}

// pinGroup checks the group to unpin. If group is empty, it returns the consumer's only group.
func pinGroup(info *jetstream.ConsumerInfo, group string) (string, error) {
	groups := info.Config.PriorityGroups
	switch {
	case info.Config.PriorityPolicy != jetstream.PriorityPolicyPinned:
		return "", cli.Usage(fmt.Errorf("consumer %s has no pins: its priority policy is not pinned_client", info.Name))
	case group == "" && len(groups) > 1:
		return "", cli.Usage(fmt.Errorf("consumer %s has the groups %s; name one", info.Name, strings.Join(groups, ", ")))
	case group != "" && !slices.Contains(groups, group):
		return "", cli.Usage(fmt.Errorf("consumer %s has no group %q; it has %s", info.Name, group, strings.Join(groups, ", ")))
	}
	return cmp.Or(group, groups[0]), nil
}

// change makes cmd call f within the timeout for requests, and print the outcome that f completes. args begin with a stream and a consumer.
func change(g *client.Globals, cmd *cobra.Command, f func(context.Context, jetstream.JetStream, []string, *outcome) error) *cobra.Command {
	cmd.RunE = g.With(func(ctx context.Context, l *client.Link, cmd *cobra.Command, args []string) error {
		o := outcome{Stream: args[0], Consumer: args[1]}
		if err := f(ctx, l.JS, args, &o); err != nil {
			return fmt.Errorf("%s consumer %q on stream %q: %w", cmd.Name(), args[1], args[0], err)
		}
		return cli.WriteJSON(cmd.OutOrStdout(), o)
	})
	return cmd
}

// workers is a command on the workers of a consumer.
type workers struct {
	*client.Globals
	wait time.Duration
}

func newPs(g *client.Globals) *cobra.Command {
	c := &workers{Globals: g}
	return c.flags(&cobra.Command{
		Use:   "ps STREAM CONSUMER",
		Short: "List the messages that the workers of a consumer handle",
		Long: `ps asks the workers of a consumer which messages they handle, since when, and how
many more they have read ahead. The workers are those with a name: jetpull consume
--named, and in Go the option Named of Consume. A worker that does not answer within
--wait is missing. If none answers, the exit code is 4. For a set of partitions, the
consumers are NAME-0, NAME-1 and so on.

With --json, it prints a line for each worker, with how many messages it has read ahead.`,
		Example: `  jetpull ps ORDERS worker`,
		RunE:    c.list,
	})
}

func newCancel(g *client.Globals) *cobra.Command {
	c := &workers{Globals: g}
	return c.flags(&cobra.Command{
		Use:   "cancel STREAM CONSUMER SEQUENCE",
		Short: "Cancel the handler that has a message",
		Long: `cancel ends the context of the handler that has the message with that sequence of
the stream, in a worker that jetpull ps lists. A command of jetpull consume gets
SIGTERM, as does a program of --worker that has the message. The message has failed
then, and is retried as after any failure.`,
		Example: `  jetpull cancel ORDERS worker 4711`,
		RunE:    c.cancel,
	})
}

func (c *workers) flags(cmd *cobra.Command) *cobra.Command {
	cli.Duration(cmd.Flags(), &c.wait, "wait", time.Second, 10*time.Millisecond, "how long to wait for the answers of workers")
	return cmd
}

// row is a message in a handler, as ps lists it.
type row struct {
	Worker, Host string
	PID          int
	running.Message
}

func (c *workers) list(cmd *cobra.Command, args []string) error {
	answers, err := ask[running.List](c, cmd, args, running.ListSubject(args[0], args[1]), "")
	if err != nil {
		return err
	}
	var rows []row
	more, waiting := 0, 0
	for _, w := range answers {
		for _, m := range w.Running {
			rows = append(rows, row{w.Name, w.Host, w.PID, m})
		}
		more, waiting = more+w.More, waiting+w.Waiting
	}
	if cli.JSON(cmd) {
		return cli.List(cmd, nil, cli.All(answers))
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.Since.Compare(b.Since) })
	columns := []string{"Worker", "Host", ">PID", ">sequence", "subject", "since", ">attempt"}
	err = cli.ListOr(cmd, columns, cli.All(rows), "no message is being handled")
	if !c.Quiet {
		cli.Notice(cmd.ErrOrStderr(), "%s answered within %v: %s more running, %s read ahead\n", progress.Plural(len(answers), "worker"), c.wait,
			progress.Count(more), progress.Count(waiting))
	}
	return err
}

func (c *workers) cancel(cmd *cobra.Command, args []string) error {
	seq, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil || seq == 0 {
		return cli.Usage(fmt.Errorf("%q is not the sequence of a message; give a whole number from 1", args[2]))
	}
	answers, err := ask[running.Cancelled](c, cmd, args, running.CancelSubject(args[0], args[1]), args[2])
	if err != nil {
		return err
	}
	had := slices.DeleteFunc(slices.Clone(answers), func(w running.Cancelled) bool { return !w.Cancelled })
	if len(had) == 0 {
		return fmt.Errorf("no handler has message %d: %s of consumer %s on stream %s answered within %v. It may be handled already, may wait, or "+
			"may be with a worker without a name", seq, progress.Plural(len(answers), "worker"), args[1], args[0], c.wait)
	}
	for _, w := range had {
		err = errors.Join(err, cli.WriteJSON(cmd.OutOrStdout(), w))
	}
	return err
}

// ask returns the responses of the workers of the consumer that args name. It returns an error if there are none.
func ask[T any](c *workers, cmd *cobra.Command, args []string, subject, body string) ([]T, error) {
	ctx := cmd.Context()
	l, err := c.OpenExisting(cmd)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	answers, err := running.Ask[T](ctx, l.NC, subject, body, c.wait)
	switch {
	case err != nil || len(answers) > 0:
		return answers, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case l.Allowed.Err() != nil:
		return nil, context.Cause(l.Allowed)
	}
	err = l.Within(ctx, func(ctx context.Context) error {
		_, err := l.JS.Consumer(ctx, args[0], args[1])
		return err
	})
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%s consumer %q on stream %q: %w", cmd.Name(), args[1], args[0], err)
	}
	return nil, cli.Late("no worker of consumer %s on stream %s answered within %v: it may have none, or none with a name, which consume --named and "+
		"in Go the option Named give", args[1], args[0], c.wait)
}
