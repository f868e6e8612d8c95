package relaycmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// echoed is how much of a message is sent back, in bytes.
const echoed = 64 << 10

// newEchoCommand is jetpull relay echo.
func newEchoCommand() *cobra.Command {
	var listen string
	var status int
	cmd := &cobra.Command{
		Use:   "echo",
		Short: "Run a receiver to try a relay with: it prints what it gets, and sends it back",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9090", "`ADDRESS` to listen on, of this machine only")
	cmd.Flags().IntVar(&status, "status", http.StatusOK, "`CODE` to answer with")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if status < 200 || status > 599 {
			return cli.Usage(fmt.Errorf("--status %d is not from 200 to 599", status))
		}
		if loopback, err := service.Loopback(listen); err != nil || !loopback {
			return cli.Usage(fmt.Errorf("--listen %q is not an address of this machine only, such as 127.0.0.1:9090", listen))
		}
		ctx, out := cmd.Context(), cmd.OutOrStdout()
		s, err := httpserve.Listen(ctx, httpserve.Config{
			Address: listen, Handler: echo(out, status), Read: time.Minute, Write: time.Minute, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "echo: listening on http://%s\n", s.Addr()); err != nil {
			return err
		}
		if err := s.Wait(ctx); err != nil {
			return err
		}
		return s.Stop(context.WithoutCancel(ctx), time.Second)
	}
	return cmd
}

// echo answers with what it got, as JSON where it is that.
func echo(out io.Writer, status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, echoed))
		if err != nil {
			return
		}
		// Whoever does not read the lines gets answers all the same.
		_, _ = fmt.Fprintf(out, "%s %s %s: %q\n", r.Method, progress.Readable(r.Header.Get("Webhook-Id")), progress.Readable(r.Header.Get("Relay-Attempt")), body)
		answer := map[string]any{"got": string(body)}
		if json.Valid(body) {
			answer["got"] = json.RawMessage(body)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = cli.WriteJSON(w, answer)
	})
}
