package brokercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/broker/backup"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/natsembed"
)

var backupVerb = remote.Verb{
	Use: "backup DIR", Short: "Copy the store of a running broker to a new or empty folder",
	Long: `backup copies the streams of a running broker to the folder DIR, which must be new
or empty. The broker must run its own server, not that of --nats. If backup fails,
the copy in DIR is not complete, and restore refuses it.`,
	Run: func(c *remote.Call) error {
		var list struct{ Streams []string }
		answer, err := c.Get(c.Cmd.Context(), "/backup", &list)
		if err != nil {
			return err
		}
		err = backup.Save(c.Cmd.Context(), c.Args[0], list.Streams, func(ctx context.Context, stream string) (io.ReadCloser, error) {
			return c.Stream(ctx, "/backup/"+url.PathEscape(stream))
		})
		if err != nil {
			return err
		}
		return cli.Answer(c.Cmd, *c.JSON, answer, "backup of %s in %s\n", progress.Plural(len(list.Streams), "stream"), c.Args[0])
	},
}

func restoreCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "restore DIR", Short: "Create the store of a broker from a backup",
		Long: `restore creates the folder --store-dir from the backup in the folder DIR. The folder
must be new or empty. If restore fails, it creates nothing.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
				return fmt.Errorf("--store-dir %s is not empty: name another", dir)
			}
			// In a folder beside it, so that what breaks off is not taken for a store.
			unfinished := filepath.Clean(dir) + ".restoring"
			if err := restore(cmd.Context(), args[0], unfinished); err != nil {
				return errors.Join(err, os.RemoveAll(unfinished))
			}
			if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			if err := os.Rename(unfinished, dir); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "restored to %s\n", dir)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "store-dir", "broker-data", "`FOLDER` to create, for the --store-dir of a broker")
	return cmd
}

func restore(ctx context.Context, from, dir string) error {
	srv, err := natsembed.Start(ctx, natsembed.Options{
		Dir: dir, Port: natsembed.NoPort, Sync: natsembed.SyncEach, MaxPayload: 64 << 20,
		Configure: func(o *server.Options) error {
			// Without it the limit would be three quarters of the free disk. The broker then sets its own --store-max.
			o.JetStreamMaxStore = 1 << 60
			return nil
		},
	})
	if err != nil {
		return err
	}
	defer srv.Stop()
	nc, err := srv.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	return backup.Load(ctx, from, nc)
}

var healthVerb = remote.Verb{
	Use: "health", Short: "Exit with 0 if a broker is ready, and with 1 if it is not or does not answer",
	Run: func(c *remote.Call) error {
		_, err := c.Get(c.Cmd.Context(), "/readyz", nil)
		return err
	},
}
