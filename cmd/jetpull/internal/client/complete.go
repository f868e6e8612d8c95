package client

import (
	"context"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
)

// completeTime bounds the completion of a name: the user waits for it with a half-typed line.
const completeTime = 2 * time.Second

// complete has the shell complete the names of streams, consumers and contexts.
func (g *Globals) complete(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("context", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return natscontext.Names(), cobra.ShellCompDirectiveNoFileComp
	}) // the flag exists
	words, _, _ := cli.Words(cmd.Use)
	if len(words) == 0 || words[0] != "STREAM" {
		return
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(words) || words[len(args)] != "STREAM" && words[len(args)] != "CONSUMER" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, err := g.names(cmd.Context(), args)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// names are those of the streams, or of the consumers of the stream that args name.
func (g *Globals) names(ctx context.Context, args []string) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, completeTime)
	defer cancel()
	t := g.Target
	t.Timeout = completeTime
	l, err := t.Open(ctx, "complete", io.Discard)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	list := jetstream.ConsumerNameLister(l.JS.StreamNames(ctx))
	if len(args) == 1 {
		s, err := l.JS.Stream(ctx, args[0])
		if err != nil {
			return nil, err
		}
		list = s.ConsumerNames(ctx)
	}
	for name := range list.Name() {
		names = append(names, name)
	}
	return names, list.Err()
}
