// Command demo serves a console with realistic work: a stream with workers, a broker, a relay and a feed, all in this process.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jetpull/jetpull/cmd/jetpull/browser/internal/world"
	"github.com/jetpull/jetpull/console"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8222", "`ADDRESS` on loopback to serve on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *listen)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen string) error {
	dir, err := os.MkdirTemp("", "jetpull-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	w, err := world.Start(ctx, dir, slog.Default())
	if err != nil {
		return err
	}
	defer w.Stop()
	c := console.Handler(w.Console)
	defer c.Close()
	srv := &http.Server{Addr: listen, Handler: c, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	fmt.Printf("Open http://%s/ in a browser. Ctrl-C ends the demo and deletes its data.\n", listen)
	if err := srv.ListenAndServe(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}
