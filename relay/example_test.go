package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/jetpull/jetpull/relay"
)

// A program runs a relay with an embedded server.
func ExampleStart() {
	dir, err := os.MkdirTemp("", "relay")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	cfg := relay.DefaultConfig()
	cfg.HTTP.Listener = "127.0.0.1:0" // a free port
	cfg.NATS.StoreDir = dir
	n, err := relay.Start(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := http.Get(n.URL() + "/readyz")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	fmt.Println("stopped:", n.Stop(ctx))
	// Output:
	// 200 OK
	// stopped: <nil>
}
