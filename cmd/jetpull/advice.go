package main

import (
	"cmp"
	"errors"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
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

// plain is an error for a reader: the library begins each of its errors with its
// name, which the command has said already, and speaks of its options, where the
// reader knows flags.
func plain(err error) string {
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

// advice is what to do about an error of a command that works on a consumer, or "".
func advice(cmd *cobra.Command, err error) string {
	stream := cmd.Flags().Arg(0)
	if stream == "" {
		return ""
	}
	see := "see what there is with: "
	if cmd.Flags().Lookup("create") != nil {
		see = "make it with --create SUBJECTS, or " + see
	}
	switch {
	case errors.Is(err, jetpull.ErrConsumerDeleted):
		return "; it was deleted while it was used: make it again, and start anew"
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return "; " + see + "nats stream ls"
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return "; " + see + "nats consumer ls " + stream
	}
	return ""
}
