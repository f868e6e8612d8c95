// Package servercmd implements jetpull server.
package servercmd

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/natsembed"
)

// New returns the command server.
func New() *cobra.Command {
	var o natsembed.Options
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a NATS server with JetStream on this machine, for experiments",
		Long: `server runs a NATS server with JetStream on 127.0.0.1 until it is interrupted. It has
no authentication: each user and process of this machine can use it. With the default
port, other commands find it without a flag. It acknowledges a message before it is on
disk, so a power failure loses the messages since the last sync, unless --sync is each.
In production, use nats-server.`,
		Example: `  jetpull server
  jetpull publish orders.new two --create ORDERS`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Logger = cli.Log(cmd.ErrOrStderr(), false)
			srv, err := natsembed.Start(cmd.Context(), o)
			if err != nil {
				return fmt.Errorf("%w; choose another --port, or 0 for any that is free, and a --dir that no other server uses", err)
			}
			defer srv.Stop()
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "server: listening on %s, store in %s. %s\n", srv.URL(), srv.Dir(), cli.Synced(o.Sync)); err != nil {
				return err
			}
			<-cmd.Context().Done()
			return nil
		},
	}
	cli.Int(cmd.Flags(), &o.Port, "port", 4222, 0, math.MaxUint16, "`PORT` on 127.0.0.1; 0 for any free port")
	cmd.Flags().StringVar(&o.Dir, "dir", "nats-data", "folder `DIR` of the store; empty for a temporary one")
	cli.Sync(cmd.Flags(), &o.Sync)
	return cmd
}
