// Package pscmd implements jetpull ps and jetpull cancel.
package pscmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/internal/running"
	"github.com/jetpull/jetpull/internal/service/progress"
)

type command struct {
	*client.Globals
	wait time.Duration
}

// New returns the command ps.
func New(g *client.Globals) *cobra.Command {
	c := &command{Globals: g}
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

// NewCancel returns the command cancel.
func NewCancel(g *client.Globals) *cobra.Command {
	c := &command{Globals: g}
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

func (c *command) flags(cmd *cobra.Command) *cobra.Command {
	cli.Duration(cmd.Flags(), &c.wait, "wait", time.Second, 10*time.Millisecond, "how long to wait for the answers of workers")
	return cmd
}

// row is a message in a handler, as ps lists it.
type row struct {
	Worker, Host string
	PID          int
	running.Message
}

func (c *command) list(cmd *cobra.Command, args []string) error {
	workers, err := ask[running.List](c, cmd, args, running.ListSubject(args[0], args[1]), "")
	if err != nil {
		return err
	}
	var rows []row
	more, waiting := 0, 0
	for _, w := range workers {
		for _, m := range w.Running {
			rows = append(rows, row{w.Name, w.Host, w.PID, m})
		}
		more, waiting = more+w.More, waiting+w.Waiting
	}
	if c.JSON {
		return cli.List(cmd, true, nil, cli.All(workers))
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.Since.Compare(b.Since) })
	columns := []string{"Worker", "Host", ">PID", ">sequence", "subject", "since", ">attempt"}
	err = cli.ListOr(cmd, false, columns, cli.All(rows), "no message is being handled")
	if !c.Quiet {
		cli.Notice(cmd.ErrOrStderr(), "%s answered within %v: %s more running, %s read ahead\n", progress.Plural(len(workers), "worker"), c.wait,
			progress.Count(more), progress.Count(waiting))
	}
	return err
}

func (c *command) cancel(cmd *cobra.Command, args []string) error {
	seq, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil || seq == 0 {
		return cli.Usage(fmt.Errorf("%q is not the sequence of a message; give a whole number from 1", args[2]))
	}
	workers, err := ask[running.Cancelled](c, cmd, args, running.CancelSubject(args[0], args[1]), args[2])
	if err != nil {
		return err
	}
	had := slices.DeleteFunc(slices.Clone(workers), func(w running.Cancelled) bool { return !w.Cancelled })
	if len(had) == 0 {
		return fmt.Errorf("no handler has message %d: %s of consumer %s on stream %s answered within %v. It may be handled already, may wait, or "+
			"may be with a worker without a name", seq, progress.Plural(len(workers), "worker"), args[1], args[0], c.wait)
	}
	return cli.List(cmd, true, nil, cli.All(had))
}

// ask returns the responses of the workers of the consumer that args name. It returns an error if there are none.
func ask[T any](c *command, cmd *cobra.Command, args []string, subject, body string) ([]T, error) {
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
