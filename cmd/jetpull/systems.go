package main

import (
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
)

// systemCommands are those of the systems that are built on the library.
func systemCommands() []*cobra.Command {
	return []*cobra.Command{brokercmd.New(), newRelayCommand(), newFeedCommand()}
}
