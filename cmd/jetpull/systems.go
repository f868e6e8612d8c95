package main

import (
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/feedcmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd"
)

// systemCommands are those of the systems that are built on the library.
func systemCommands(g *globals) []*cobra.Command {
	return []*cobra.Command{brokercmd.New(), relaycmd.New(&g.json), feedcmd.New()}
}
