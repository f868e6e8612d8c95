package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/jetpull/jetpull/relay"
	"github.com/jetpull/jetpull/relay/client"
)

// startRelay runs a relay with an embedded server.
func startRelay() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "relay-example-")
	if err != nil {
		panic(err)
	}
	cfg := relay.DefaultConfig()
	cfg.HTTP.Listener, cfg.NATS.StoreDir = "127.0.0.1:0", dir
	n, err := relay.Start(context.Background(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	return n.URL(), func() {
		if err := n.Stop(context.Background()); err != nil {
			panic(err)
		}
		_ = os.RemoveAll(dir)
	}
}

func put(url string, config any) {
	data, err := json.Marshal(config)
	if err != nil {
		panic(err)
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, url, strings.NewReader(string(data)))
	if err != nil {
		panic(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		panic(resp.Status)
	}
}

// A sender waits for the response.
func ExampleClient_SendAndWait() {
	url, stop := startRelay()
	defer stop()
	ci := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"build":17}`) }))
	defer ci.Close()
	put(url+"/v1/receivers/ci", map[string]any{"post_endpoint": ci.URL})

	c := client.New(url, "", nil)
	r, err := c.SendAndWait(context.Background(), client.Message{Source: "repo", ID: "push-1", Receiver: "ci", Payload: "main"}, 20*time.Second)
	fmt.Println(r.Status, string(r.Response), err)
	again, err := c.Send(context.Background(), client.Message{Source: "repo", ID: "push-1", Receiver: "ci", Payload: "main"})
	fmt.Println(again.Status, err)
	// Output:
	// DONE {"build":17} <nil>
	// DONE <nil>
}
