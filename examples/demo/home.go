package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/natsembed"
)

// home is where the demo runs: a server of its own, or the user's.
type home struct {
	url  string
	srv  *natsembed.Server // nil for the user's server
	temp string            // folder to remove, or ""
	nc   *nats.Conn
}

func openHome(ctx context.Context, s settings) (*home, error) {
	h := &home{url: s.url}
	if s.url != "" {
		return h, nil
	}
	dir := s.store
	if dir == "" {
		temp, err := os.MkdirTemp("", "jetpull-demo-")
		if err != nil {
			return nil, fmt.Errorf("make a folder for the store: %w", err)
		}
		dir, h.temp = temp, temp
	}
	srv, err := natsembed.Start(ctx, natsembed.Options{Dir: dir})
	if err != nil {
		return nil, errors.Join(err, h.remove())
	}
	h.srv, h.url = srv, srv.URL()
	return h, nil
}

// keeps reports whether the store is still there after the demo.
func (h *home) keeps() bool { return h.srv != nil && h.temp == "" }

func (h *home) connect() (jetstream.JetStream, error) {
	nc, err := nats.Connect(h.url, nats.Name("jetpull demo"))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", h.url, err)
	}
	h.nc = nc
	return jetstream.New(nc)
}

// restart starts the server anew on the same store, so that what it says then
// is what is on disk. A server of the user's is left alone.
func (h *home) restart(ctx context.Context) (js jetstream.JetStream, restarted bool, err error) {
	h.nc.Close()
	if h.srv != nil {
		dir := h.srv.Dir()
		h.srv.Stop()
		if h.srv, err = natsembed.Start(ctx, natsembed.Options{Dir: dir}); err != nil {
			return nil, false, err
		}
		h.url, restarted = h.srv.URL(), true
	}
	js, err = h.connect()
	return js, restarted, err
}

func (h *home) close() error {
	if h.nc != nil {
		h.nc.Close()
	}
	if h.srv != nil {
		h.srv.Stop()
	}
	return h.remove()
}

func (h *home) remove() error {
	if h.temp == "" {
		return nil
	}
	return os.RemoveAll(h.temp)
}
