package main

import "github.com/spf13/cobra"

// systemCommands are those of the systems that are built on the library.
func systemCommands() []*cobra.Command {
	return []*cobra.Command{newBrokerCommand(), newRelayCommand(), newFeedCommand()}
}
