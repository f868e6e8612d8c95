package partition

import (
	"context"
	"errors"
	"log"
	"os"
	"testing"

	"github.com/jetpull/jetpull/bench/internal/child"
	"github.com/jetpull/jetpull/natsembed"
)

// server is a NATS server in a separate process, with a file store and default settings.
var server *child.Process

func TestMain(m *testing.M) {
	child.Main(func(ctx context.Context, args []string, ready func(urls ...string)) error {
		srv, err := natsembed.Start(ctx, natsembed.Options{Dir: args[0], Name: "bench"})
		if err != nil {
			return err
		}
		defer srv.Stop()
		ready(srv.URL())
		<-ctx.Done()
		return nil
	})
	dir, err := os.MkdirTemp("", "jetpull-bench-")
	if err == nil {
		server, err = child.Start(dir)
	}
	if err != nil {
		log.Fatal("bench: server: ", err)
	}
	code := m.Run()
	if err := errors.Join(server.Stop(), os.RemoveAll(dir)); err != nil {
		log.Fatal("bench: server: ", err)
	}
	os.Exit(code)
}
