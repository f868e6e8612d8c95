// Package remote is the client of a relay for the commands.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/relay/client"
)

// The environment variables of the commands that are clients of a relay.
const (
	EnvURL   = "JETPULL_RELAY_URL"
	EnvToken = "JETPULL_RELAY_TOKEN"
)

const defaultURL = "http://127.0.0.1:8080"

// Relay says which relay to talk to, and how to show what it answers.
type Relay struct {
	JSON    *bool
	Timeout time.Duration

	url, token string
}

// Flags adds the flags that say which relay to a command and those below it.
func (r *Relay) Flags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&r.url, "url", "", "`URL` of the relay; $"+EnvURL+", or "+defaultURL)
	flags.StringVar(&r.token, "token", "", "`TOKEN` of a sender or the administration; $"+EnvToken)
	flags.DurationVar(&r.Timeout, "timeout", 10*time.Second, "limit for a request, waits for a response not counted")
	flags.BoolVar(r.JSON, "json", false, "print JSON, one value per line; errors too")
}

// Ask makes a request that takes --timeout and wait at most. It returns the answer, and reads it into view unless that is nil.
func (r *Relay) Ask(ctx context.Context, wait time.Duration, method, path string, body, view any) (answer json.RawMessage, err error) {
	base := cmp.Or(r.url, os.Getenv(EnvURL), defaultURL)
	if err := cli.CheckURL("--url", base); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, r.Timeout+wait)
	defer cancel()
	err = client.New(base, cmp.Or(r.token, os.Getenv(EnvToken)), nil).Call(limited, method, path, body, (*[]byte)(&answer))
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, cli.ErrInterrupted
	case errors.Is(err, client.ErrUnauthorized):
		return nil, fmt.Errorf("%w: give --token or $%s", err, EnvToken)
	default:
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			err = fmt.Errorf("%w; start one with jetpull relay, or give --url or $%s", err, EnvURL)
		}
		return nil, err
	}
	if view == nil {
		return answer, nil
	}
	if err := json.Unmarshal(answer, view); err != nil {
		return nil, fmt.Errorf("read the relay's answer to %s %s: %w", method, path, err)
	}
	return answer, nil
}

// Print writes what the relay answered: as it is with --json, else as text.
func (r *Relay) Print(cmd *cobra.Command, answer json.RawMessage, text string) error {
	if *r.JSON {
		var line bytes.Buffer
		if err := json.Compact(&line, answer); err != nil {
			return fmt.Errorf("the relay answered no JSON: %w", err)
		}
		text = progress.Escape(line.String()) + "\n"
	}
	_, err := io.WriteString(cmd.OutOrStdout(), text)
	return err
}

// List writes items: each on a line with --json, else a table with the row that each makes.
func List[T any](r *Relay, cmd *cobra.Command, items []json.RawMessage, header []string, row func(*T) []string) error {
	var rows [][]string
	for _, item := range items {
		if *r.JSON {
			if err := r.Print(cmd, item, ""); err != nil {
				return err
			}
			continue
		}
		var view T
		if err := json.Unmarshal(item, &view); err != nil {
			return fmt.Errorf("read the relay's list: %w", err)
		}
		rows = append(rows, row(&view))
	}
	if *r.JSON {
		return nil
	}
	return progress.Table(cmd.OutOrStdout(), header, rows)
}

// Waiting is why a message, or all of a receiver, is not sent now.
type Waiting struct {
	For   string    `json:"for"`
	Until time.Time `json:"until"`
}

// reasons are the words for what the relay names.
var reasons = map[string]string{
	"disabled": "a new configuration: the receiver answered 410 and is disabled until it is put again",
	"pause":    "the end of the receiver's pause",
	"order":    "an earlier message of its source",
	"breaker":  "the next probe of the receiver's breaker, which failures in a row have opened",
	"hold":     "the time that the receiver asked for by Retry-After",
	"rate":     "a place in the receiver's rate window",
	"retry":    "its next attempt",
}

// Text says what is waited for.
func (w *Waiting) Text() string {
	text := cmp.Or(reasons[w.For], w.For)
	if !w.Until.IsZero() {
		text += ", until " + w.Until.Local().Format(time.DateTime)
	}
	return text
}

// Table is rows under a header as text.
func Table(header []string, rows [][]string) string {
	var b strings.Builder
	_ = progress.Table(&b, header, rows) // a row has as many cells as the header, and a Builder takes all
	return b.String()
}

// ReadFile reads a file, or standard input for "-".
func ReadFile(cmd *cobra.Command, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(cmd.InOrStdin())
	}
	return os.ReadFile(path)
}
