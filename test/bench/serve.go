package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/jetpull/jetpull/internal/natstest"
)

// serveCommand is the hidden first argument under which this program is the server instead of the measurement.
const serveCommand = "serve"

// endpoints is the server process's one answer to its parent.
type endpoints struct {
	Direct  string `json:"direct"`
	Delayed string `json:"delayed"`
}

// serve runs a nats-server with a file store, and a proxy that delays before it, until stdin ends: the parent has
// the other end, so no server outlives a parent that was killed. The proxy lives here so that its work is not in
// the CPU time of the process that measures.
func serve(args []string, stdin io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	dir := flags.String("dir", "", "folder of the file store")
	delay := flags.Duration("delay", 0, "one-way latency of the slow link")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("serve: -dir is missing: it names the folder of the file store")
	}
	srv, err := startNATS(*dir)
	if err != nil {
		return err
	}
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	proxy, err := natstest.ListenProxy(srv.ClientURL())
	if err != nil {
		return fmt.Errorf("serve: delay proxy: %w", err)
	}
	defer proxy.Close()
	proxy.Delay(*delay)
	if err := json.NewEncoder(stdout).Encode(endpoints{Direct: srv.ClientURL(), Delayed: proxy.URL()}); err != nil {
		return fmt.Errorf("serve: report the endpoints: %w", err)
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// startNATS starts a server as a user would run one: JetStream on disk, the server's default sync interval.
func startNATS(dir string) (*server.Server, error) {
	srv, err := server.NewServer(&server.Options{
		ServerName: "bench",
		Host:       "127.0.0.1",
		Port:       server.RANDOM_PORT,
		JetStream:  true,
		StoreDir:   dir,
		NoLog:      true,
		NoSigs:     true,
	})
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(serverStart) {
		srv.Shutdown()
		return nil, fmt.Errorf("serve: server not ready after %v; is %s writable?", serverStart, dir)
	}
	return srv, nil
}

// serverStart bounds how long the server may take before it accepts connections.
const serverStart = 20 * time.Second
