package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/bench/measure"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/natsembed"
)

// serveCommand is the hidden first argument under which this program is the server instead of the measurement.
const serveCommand = "serve"

// endpoints is the server process's one answer to its parent.
type endpoints struct {
	Direct  string `json:"direct"`
	Delayed string `json:"delayed"`
}

// connect makes the links of which each turn's connection is another one.
func (e endpoints) connect(name string) (links measure.Links, err error) {
	if links.Direct, err = connect(e.Direct, name); err != nil {
		return links, err
	}
	links.Delayed, err = connect(e.Delayed, name)
	return links, err
}

func connect(url, name string) (measure.Link, error) {
	conn, err := nats.Connect(url, nats.Name(name))
	if err != nil {
		return measure.Link{}, fmt.Errorf("connect to %s: %w", url, err)
	}
	js, err := jetstream.New(conn)
	return measure.Link{JetStream: js}, err
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
	// As a user would run one: JetStream on disk, the server's default sync interval.
	srv, err := natsembed.Start(context.Background(), natsembed.Options{Dir: *dir, Name: "bench"})
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	defer srv.Stop()
	proxy, err := natstest.ListenProxy(srv.URL())
	if err != nil {
		return fmt.Errorf("serve: delay proxy: %w", err)
	}
	defer proxy.Close()
	proxy.Delay(*delay)
	if err := json.NewEncoder(stdout).Encode(endpoints{Direct: srv.URL(), Delayed: proxy.URL()}); err != nil {
		return fmt.Errorf("serve: report the endpoints: %w", err)
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}
