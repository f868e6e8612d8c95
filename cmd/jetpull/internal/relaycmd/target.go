package relaycmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/relay/client"
)

// The environment variables of those commands that are clients of a relay.
const (
	envURL   = "JETPULL_RELAY_URL"
	envToken = "JETPULL_RELAY_TOKEN"
)

// target says which relay to talk to, and how to show what it answers.
type target struct {
	url, token string
	timeout    time.Duration
	json       *bool
}

func (t *target) register(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&t.url, "url", "", "`URL` of the relay; $"+envURL+", or http://127.0.0.1:8080")
	flags.StringVar(&t.token, "token", "", "`TOKEN` of a sender or the administration; $"+envToken)
	flags.DurationVar(&t.timeout, "timeout", 10*time.Second, "limit for a request, waits for a response not counted")
	flags.BoolVar(t.json, "json", false, "print JSON, one value per line; errors too")
}

// client is a client of the relay.
func (t *target) client() (*client.Client, error) {
	base, token := t.url, t.token
	if base == "" {
		base = os.Getenv(envURL)
	}
	if base == "" {
		base = "http://127.0.0.1:8080"
	}
	if token == "" {
		token = os.Getenv(envToken)
	}
	if err := cli.CheckURL("--url", base); err != nil {
		return nil, err
	}
	return client.New(base, token, nil), nil
}

// call makes a request that takes --timeout and wait at most.
func (t *target) call(ctx context.Context, wait time.Duration, method, path string, body, answer any) error {
	c, err := t.client()
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, t.timeout+wait)
	defer cancel()
	err = c.Call(limited, method, path, body, answer)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return cli.ErrInterrupted
	case errors.Is(err, client.ErrUnauthorized):
		return fmt.Errorf("%w: give --token or $%s", err, envToken)
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return fmt.Errorf("%w; start one with jetpull relay, or give --url or $%s", err, envURL)
	}
	return err
}

// print writes what the relay answered: as it is with --json, else by text.
func (t *target) print(out io.Writer, answer json.RawMessage, text func() error) error {
	if !*t.json {
		return text()
	}
	var line bytes.Buffer
	if err := json.Compact(&line, answer); err != nil {
		return fmt.Errorf("the relay answered no JSON: %w", err)
	}
	_, err := fmt.Fprintln(out, progress.Escape(line.String()))
	return err
}

// fetch makes a request, and reads its answer into view.
func (t *target) fetch(ctx context.Context, wait time.Duration, method, path string, body, view any) (json.RawMessage, error) {
	var raw []byte
	if err := t.call(ctx, wait, method, path, body, &raw); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, view); err != nil {
		return nil, fmt.Errorf("read the relay's answer to %s %s: %w", method, path, err)
	}
	return raw, nil
}

// failedError says that something was done and messages have failed: exit code 5.
type failedError struct{ text string }

// Error says what failed.
func (e *failedError) Error() string { return e.text }

// Is makes it [cli.ErrFailed] for the exit code.
func (e *failedError) Is(target error) bool { return target == cli.ErrFailed }

// readFile reads a file, or standard input for "-".
func readFile(cmd *cobra.Command, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(cmd.InOrStdin())
	}
	return os.ReadFile(path)
}
