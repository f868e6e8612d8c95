// Package registry implements jetpull relay receivers and jetpull relay senders, which show and change the configuration of a relay.
package registry

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/relay/client"
)

// kind is receivers, or senders. V is what the relay shows of one.
type kind[V any] struct {
	relay  *remote.Server
	names  string // of the command and the route: receivers, or senders
	show   string // what the command show does
	rm     string // and the command rm
	put    *cobra.Command
	fields *pflag.FlagSet // the flags of put, each called as the field that it sets
	header []string
	row    func(*V) []string
	text   func(*V) string
}

func (k kind[V]) path(name string) string { return "/v1/" + k.names + "/" + client.PathEscape(name) }

// field is what a flag of put sets.
func field(flag string) string {
	if flag == timeoutFlag {
		return "timeout"
	}
	return strings.ReplaceAll(flag, "-", "_")
}

// command is jetpull relay receivers, or senders.
func (k kind[V]) command() *cobra.Command {
	cmd := &cobra.Command{Use: k.names, Short: "Show and configure " + k.names, Args: cobra.NoArgs, RunE: cli.Help}
	fields := remote.Fields{FlagSet: k.fields, Name: field}
	fields.Register(k.put)
	k.put.RunE = func(cmd *cobra.Command, args []string) (err error) {
		body, err := fields.Given(cmd)
		if err != nil {
			return err
		}
		return k.print(cmd, http.MethodPut, args[0], body)
	}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List the " + k.names, Args: cobra.NoArgs, RunE: k.list},
		&cobra.Command{
			Use: "show NAME", Short: k.show,
			RunE: func(cmd *cobra.Command, args []string) error { return k.print(cmd, http.MethodGet, args[0], nil) },
		},
		k.put,
		&cobra.Command{
			Use: "rm NAME", Short: k.rm,
			RunE: func(cmd *cobra.Command, args []string) error {
				_, _, err := k.relay.Ask(cmd.Context(), remote.Request{Method: http.MethodDelete, Path: k.path(args[0])}, nil)
				return err
			},
		})
	for _, sub := range cmd.Commands() {
		if sub.Name() != "ls" {
			sub.Args = cobra.ExactArgs(1)
			k.relay.Complete(sub, k.complete)
		}
	}
	return cmd
}

func (k kind[V]) all(ctx context.Context) (items []json.RawMessage, err error) {
	var answer struct{ Items []json.RawMessage }
	_, err = k.relay.Get(ctx, "/v1/"+k.names, &answer)
	return answer.Items, err
}

// complete returns the names that can follow args.
func (k kind[V]) complete(ctx context.Context, args []string) (names []string, err error) {
	if len(args) > 0 {
		return nil, nil
	}
	items, err := k.all(ctx)
	for _, item := range items {
		var v struct{ Name string }
		if err := json.Unmarshal(item, &v); err != nil {
			return nil, err
		}
		names = append(names, v.Name)
	}
	return names, err
}

func (k kind[V]) list(cmd *cobra.Command, _ []string) error {
	items, err := k.all(cmd.Context())
	if err != nil {
		return err
	}
	return remote.List(k.relay, cmd, items, k.header, k.row)
}

// print makes a request that is answered with a receiver or sender, and prints that.
func (k kind[V]) print(cmd *cobra.Command, method, name string, body any) error {
	var v V
	answer, _, err := k.relay.Ask(cmd.Context(), remote.Request{Method: method, Path: k.path(name), Body: body}, &v)
	if err != nil {
		return err
	}
	return k.relay.Print(cmd, answer, k.text(&v))
}
