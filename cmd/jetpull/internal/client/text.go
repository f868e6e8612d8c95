package client

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// flagOf are the flags by the options of the library that they set.
var flagOf = map[string]string{
	"n":             "--count",
	"MaxWait":       "--wait",
	"NoWait":        "--no-wait",
	"FillBatch":     "--fill",
	"MaxBytes":      "--max-bytes",
	"Group":         "--group",
	"MinPending":    "--min-pending",
	"MinAckPending": "--min-ack-pending",
	"Priority":      "--priority",
	"Concurrency":   "--concurrency",
	"OrderedBy":     "--ordered-by",
	"Prefetch":      "--prefetch",
	"RetryDelays":   "--retry-delays",
	"MaxAttempts":   "--max-attempts",
	"DeadLetter":    "--dead-letter",
	"DrainTimeout":  "--drain-timeout",
}

// Plain is an error for a reader: the library begins each of its errors with its
// name, which the command has said already, and speaks of its options, where the
// reader knows flags.
func Plain(err error) string {
	if wrong, ok := errors.AsType[*jetpull.OptionError](err); ok {
		return cmp.Or(flagOf[wrong.Option], wrong.Option) + ": " + wrong.Problem
	}
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "jetpull: "), ": jetpull: ", ": ")
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		text = strings.ReplaceAll(text, api.Error(), api.Description)
	}
	if errors.Is(err, jetpull.ErrMaxBytes) {
		return strings.Replace(text, "raise MaxBytes", "raise --max-bytes", 1)
	}
	return text
}

// Warn tells of a problem that does not end the command.
func Warn(errOut io.Writer, asJSON bool, text string) {
	if asJSON {
		_ = cli.WriteJSON(errOut, struct {
			Problem string `json:"problem"`
		}{text})
		return
	}
	cli.Tell(errOut, "jetpull: %s\n", text)
}

// Warner is Warn on errOut.
func (g *Globals) Warner(errOut io.Writer) func(string) {
	return func(text string) { Warn(errOut, g.JSON, text) }
}

// SortedNames are the names of headers in order.
func SortedNames(h nats.Header) []string {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
