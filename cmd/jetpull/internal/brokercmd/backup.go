package brokercmd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/broker/backup"
	brokerclient "github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service/httpclient"
	"github.com/jetpull/jetpull/natsembed"
)

func backupCommand() *cobra.Command {
	var from remote
	cmd := &cobra.Command{
		Use: "backup DIR", Short: "Copy the store of a running broker with a server of its own into a new folder", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := from.get(cmd.Context(), "/backup")
			if err != nil {
				return err
			}
			var list struct{ Streams []string }
			if err := errors.Join(json.NewDecoder(body).Decode(&list), body.Close()); err != nil {
				return err
			}
			err = backup.Save(cmd.Context(), args[0], list.Streams, func(ctx context.Context, stream string) (io.ReadCloser, error) {
				return from.get(ctx, "/backup/"+url.PathEscape(stream))
			})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "backup of %d streams in %s\n", len(list.Streams), args[0])
			return err
		},
	}
	from.flags(cmd)
	return cmd
}

func restoreCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "restore DIR", Short: "Make the store of a broker from a backup, in a folder that is new or empty", Args: cobra.ExactArgs(1),
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
	cmd.Flags().StringVar(&dir, "store-dir", "broker-data", "`FOLDER` of the store to make")
	return cmd
}

func restore(ctx context.Context, from, dir string) error {
	srv, err := natsembed.Start(ctx, natsembed.Options{
		Dir: dir, Port: natsembed.NoPort, SyncAlways: true, MaxPayload: 64 << 20,
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

// healthTime bounds the question for a broker's health.
const healthTime = 3 * time.Second

func healthCommand() *cobra.Command {
	var of remote
	cmd := &cobra.Command{
		Use: "health", Short: "Tell by the exit status whether a broker is ready", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), healthTime)
			defer cancel()
			body, err := of.get(ctx, "/readyz")
			if err != nil {
				return err
			}
			return body.Close()
		},
	}
	of.flags(cmd)
	return cmd
}

// The environment variables are those of the broker itself.
const (
	envToken  = "JETPULL_BROKER_ADMIN_TOKEN"
	envSecret = "JETPULL_BROKER_GATEWAY_AUTH_HMAC_SHARED_SECRET"
)

// remote is a running broker.
type remote struct{ url, token, secret, ca string }

func (r *remote) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&r.url, "url", "http://127.0.0.1:8080", "`URL` of the broker")
	flags.StringVar(&r.token, "admin-token", "", "its admin `TOKEN`; seen in the list of processes, so better $"+envToken)
	flags.StringVar(&r.secret, "gateway-auth-hmac-shared-secret", "", "`SECRET` to sign requests with, if it wants that; better $"+envSecret)
	flags.StringVar(&r.ca, "tlsca", "", "`FILE` with the certificates of authorities, beside the system's")
}

// get returns the answer's body.
func (r *remote) get(ctx context.Context, path string) (io.ReadCloser, error) {
	if err := cli.CheckURL("--url", r.url); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(r.url, "/")+path, nil)
	if err != nil {
		return nil, mask.Error(err, r.url)
	}
	if token := cmp.Or(r.token, os.Getenv(envToken)); token != "" {
		req.Header.Set("X-Broker-Admin-Token", token)
	}
	client, err := r.client()
	if err != nil {
		return nil, err
	}
	if secret := cmp.Or(r.secret, os.Getenv(envSecret)); secret != "" {
		if client.Transport, err = brokerclient.Signing(secret, client.Transport); err != nil {
			return nil, err
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, mask.Error(err, r.url)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, errors.Join(fmt.Errorf("GET %s: %s: %s", path, resp.Status, text), resp.Body.Close())
	}
	return resp.Body, nil
}

func (r *remote) client() (*http.Client, error) {
	if r.ca == "" {
		return httpclient.New(nil), nil
	}
	text, err := os.ReadFile(natscontext.ExpandHome(r.ca))
	if err != nil {
		return nil, fmt.Errorf("--tlsca: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--tlsca %s has no certificate in PEM", r.ca)
	}
	return httpclient.New(&http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}), nil
}
