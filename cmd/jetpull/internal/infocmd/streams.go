package infocmd

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
)

// stream is a stream at one moment.
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

// NewStreams returns the command streams.
func NewStreams(g *client.Globals) *cobra.Command {
	cmd := &cobra.Command{Use: "streams", Short: "List the streams, or show one"}
	cmd.AddCommand(&cobra.Command{
		Use: "ls", Short: "List the streams", Example: `  jetpull streams ls`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.With(cmd, func(ctx context.Context, l *client.Link) error {
				list := l.JS.ListStreams(ctx)
				return cli.List(cmd, g.JSON, []string{"stream", "subjects", ">messages", ">bytes", ">consumers", "last_time"},
					listed(list.Info(), list.Err, shownStream))
			})
		},
	}, &cobra.Command{
		Use: "info STREAM", Short: "Show a stream", Example: `  jetpull streams info ORDERS`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.With(cmd, func(ctx context.Context, l *client.Link) error {
				s, err := l.JS.Stream(ctx, args[0])
				if err != nil {
					return fmt.Errorf("stream %q: %w", args[0], err)
				}
				return cli.Show(cmd.OutOrStdout(), g.JSON, shownStream(s.CachedInfo()))
			})
		},
	})
	return cmd
}

// newList is jetpull consumers ls.
func newList(g *client.Globals) *cobra.Command {
	return &cobra.Command{
		Use: "ls STREAM", Short: "List the consumers of a stream", Example: `  jetpull consumers ls ORDERS`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.With(cmd, func(ctx context.Context, l *client.Link) error {
				s, err := l.JS.Stream(ctx, args[0])
				if err != nil {
					return fmt.Errorf("stream %q: %w", args[0], err)
				}
				list, now := s.ListConsumers(ctx), time.Now()
				return cli.List(cmd, g.JSON, []string{"consumer", "filter", ">pending", ">ack_pending", ">redelivered", ">waiting_pulls", "paused"},
					listed(list.Info(), list.Err, func(info *jetstream.ConsumerInfo) state { return observe(info, now) }))
			})
		},
	}
}

// listed are what the server lists, each as shown has it.
func listed[I, V any](infos <-chan I, failed func() error, shown func(I) V) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		for info := range infos {
			if !yield(shown(info), nil) {
				return
			}
		}
		if err := failed(); err != nil {
			var none V
			yield(none, err)
		}
	}
}
