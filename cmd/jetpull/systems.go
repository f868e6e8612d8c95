package main

import (
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/feedcmd"
)

// systemCommands are those of the systems that are built on the library.
func systemCommands() []*cobra.Command {
	return []*cobra.Command{brokercmd.New(), newRelayCommand(), feedcmd.New()}
}
