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
	"sync"
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

// A receiver accepts messages, and has a result later.
func ExampleReceiver() {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	verifier, err := client.NewVerifier(secret)
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	builds := map[string]any{}
	ci := httptest.NewServer(&client.Receiver{
		Verifier: verifier,
		Accept: func(_ context.Context, d client.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			builds[d.Source+" "+d.ID] = map[string]string{"built": string(d.Payload)}
			return nil
		},
		Result: func(_ context.Context, source, id string) (any, bool, error) {
			mu.Lock()
			defer mu.Unlock()
			build, known := builds[source+" "+id]
			return build, known, nil
		},
	})
	defer ci.Close()
	url, stop := startRelay()
	defer stop()
	put(url+"/v1/receivers/ci", map[string]any{"post_endpoint": ci.URL, "status_endpoint": ci.URL + client.StatusPath, "secrets": []string{secret}})

	c := client.New(url, "", nil)
	_, err = c.Send(context.Background(), client.Message{Source: "a b/c", ID: "1", Receiver: "ci", Payload: 5})
	fmt.Println(err)
	r, err := c.Wait(context.Background(), "a b/c", "1", 20*time.Second)
	fmt.Println(r.Status, string(r.Response), err)
	// Output:
	// <nil>
	// DONE {"built":"5"} <nil>
}

// A sender gets results by callback.
func ExampleCallback() {
	const secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	verifier, err := client.NewVerifier(secret)
	if err != nil {
		panic(err)
	}
	results := make(chan client.Result, 1)
	git := httptest.NewServer(&client.Callback{Verifier: verifier, Handle: func(_ context.Context, r client.Result) error {
		results <- r
		return nil
	}})
	defer git.Close()
	ci := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	defer ci.Close()
	url, stop := startRelay()
	defer stop()
	put(url+"/v1/receivers/ci", map[string]any{"post_endpoint": ci.URL})
	put(url+"/v1/senders/git", map[string]any{
		"callback_endpoint": git.URL, "token": "git-token", "secrets": []string{secret},
		"sources": []string{"repo"},
	})

	_, err = client.New(url, "git-token", nil).Send(context.Background(), client.Message{Source: "repo", ID: "1", Receiver: "ci", Payload: 1})
	fmt.Println(err)
	r := <-results
	fmt.Println(r.Status, r.Error.Code)
	// Output:
	// <nil>
	// FAILED PERMANENT
}
