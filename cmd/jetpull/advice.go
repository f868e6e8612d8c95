package main

import (
	"errors"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
)

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
