// Package serve is what the commands that run a system as a process have in common.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/tracing"
	"github.com/jetpull/jetpull/internal/service"
)

// Flags adds a flag for each setting to a command. The returned function has those that were given, by name.
func Flags[C any](cmd *cobra.Command, settings []service.Setting[C]) (given func() map[string]string) {
	values := map[string]*string{}
	for _, s := range settings {
		if s.Ignored {
			continue
		}
		help := fmt.Sprintf("%s ([%s] %s, $%s)", s.Help, s.Section, s.Key, s.Env())
		values[s.Flag()] = cmd.Flags().String(s.Flag(), s.Default, help)
	}
	return func() map[string]string {
		found := map[string]string{}
		for flag, value := range values {
			if cmd.Flags().Changed(flag) {
				found[flag] = *value
			}
		}
		return found
	}
}

// stopTime bounds the shutdown: requests in progress may take as long as their timeout, which is 30 s unless set.
const stopTime = 45 * time.Second

// Node is a running process of a system.
type Node interface {
	URL() string
	// Wait returns when ctx ends, with nil, or when the node has failed.
	Wait(ctx context.Context) error
	Stop(ctx context.Context) error
}

// Process says how to run one.
type Process struct {
	Name              string
	LogFile, LogLevel string
	Out, Err          io.Writer
	Start             func(ctx context.Context, log *slog.Logger) (Node, error)
}

// Run runs a node until ctx ends.
func Run(ctx context.Context, p Process) (err error) {
	log, closeLog, err := service.OpenLog(p.LogFile, p.LogLevel, p.Err)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	stopTracing, err := tracing.Start(ctx, "jetpull-"+p.Name, log)
	if err != nil {
		return err
	}
	defer func() { stopTracing(context.WithoutCancel(ctx)) }()
	n, err := p.Start(ctx, log)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	if _, err := fmt.Fprintf(p.Out, "%s: listening on %s\n", p.Name, n.URL()); err != nil {
		log.Warn("standard output", "error", err)
	}
	failed := n.Wait(ctx)
	log.Info("shutting down")
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return errors.Join(failed, n.Stop(stopping))
}
