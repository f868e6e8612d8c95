// Package registry implements jetpull relay receivers and jetpull relay senders, which show and change the configuration of a relay.
package registry

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd/remote"
	"github.com/jetpull/jetpull/relay/client"
)

// kind is receivers, or senders. V is what the relay shows of one.
type kind[V any] struct {
	relay  *remote.Relay
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

// command is jetpull relay receivers, or senders.
func (k kind[V]) command() *cobra.Command {
	cmd := &cobra.Command{Use: k.names, Short: "Show and configure " + k.names, Args: cobra.NoArgs, RunE: cli.Help}
	k.put.Args = cobra.ExactArgs(1)
	k.put.Flags().AddFlagSet(k.fields)
	file := k.put.Flags().String("file", "", "`FILE` with the configuration as JSON; - for standard input")
	k.put.RunE = func(cmd *cobra.Command, args []string) (err error) {
		body := map[string]any{}
		if *file != "" {
			if body, err = readBody(cmd, *file); err != nil {
				return err
			}
		}
		if err := overlay(body, k.fields); err != nil {
			return err
		}
		return k.print(cmd, http.MethodPut, args[0], body)
	}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List the " + k.names, Args: cobra.NoArgs, RunE: k.list},
		&cobra.Command{
			Use: "show NAME", Short: k.show, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return k.print(cmd, http.MethodGet, args[0], nil) },
		},
		k.put,
		&cobra.Command{
			Use: "rm NAME", Short: k.rm, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, err := k.relay.Ask(cmd.Context(), 0, http.MethodDelete, k.path(args[0]), nil, nil)
				return err
			},
		})
	return cmd
}

func (k kind[V]) list(cmd *cobra.Command, _ []string) error {
	var answer struct{ Items []json.RawMessage }
	if _, err := k.relay.Ask(cmd.Context(), 0, http.MethodGet, "/v1/"+k.names, nil, &answer); err != nil {
		return err
	}
	return remote.List(k.relay, cmd, answer.Items, k.header, k.row)
}

// print makes a request that is answered with a receiver or sender, and prints that.
func (k kind[V]) print(cmd *cobra.Command, method, name string, body any) error {
	var v V
	answer, err := k.relay.Ask(cmd.Context(), 0, method, k.path(name), body, &v)
	if err != nil {
		return err
	}
	return k.relay.Print(cmd, answer, k.text(&v))
}

func readBody(cmd *cobra.Command, file string) (body map[string]any, err error) {
	data, err := remote.ReadFile(cmd, file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return nil, cli.Usage(fmt.Errorf("--file %s is not a JSON object: %w", file, err))
	}
	if body == nil {
		return nil, cli.Usage(fmt.Errorf("--file %s is null and not a JSON object: write the fields of its configuration, or {}", file))
	}
	return body, nil
}

// overlay sets the fields whose flags were given.
func overlay(body map[string]any, fields *pflag.FlagSet) (err error) {
	fields.VisitAll(func(f *pflag.Flag) {
		field, text := strings.ReplaceAll(f.Name, "-", "_"), f.Value.String()
		if f.Name == timeoutFlag {
			field = "timeout"
		}
		list, isList := f.Value.(pflag.SliceValue)
		switch {
		case !f.Changed:
		case isList:
			body[field] = list.GetSlice()
		case f.Value.Type() == "string":
			body[field] = text
		case json.Valid([]byte(text)): // numbers and booleans are written as JSON writes them
			body[field] = json.RawMessage(text)
		default:
			err = cli.Usage(fmt.Errorf("--%s %s is no number", f.Name, text))
		}
	})
	return err
}
