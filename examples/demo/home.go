package main

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/natsembed"
)

// home is the server on which the demo runs: its own, or the user's.
type home struct {
	url   string
	srv   *natsembed.Server // nil for the user's server
	keeps bool              // the store remains after the demo
	nc    *nats.Conn
}

func openHome(ctx context.Context, s settings) (*home, error) {
	if s.url != "" {
		return &home{url: s.url}, nil
	}
	srv, err := natsembed.Start(ctx, natsembed.Options{Dir: s.store})
	if err != nil {
		return nil, err
	}
	return &home{url: srv.URL(), srv: srv, keeps: s.store != ""}, nil
}

func (h *home) connect() (jetstream.JetStream, error) {
	nc, err := nats.Connect(h.url, nats.Name("jetpull demo"))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", h.url, err)
	}
	h.nc = nc
	return jetstream.New(nc)
}

// restart restarts the demo's own server on the same store, so that its counters then come from disk. A user's server is not restarted.
func (h *home) restart(ctx context.Context) (js jetstream.JetStream, restarted bool, err error) {
	h.nc.Close()
	if h.srv != nil {
		if err := h.srv.Restart(ctx); err != nil {
			return nil, false, err
		}
	}
	js, err = h.connect()
	return js, h.srv != nil, err
}

func (h *home) close() {
	if h.nc != nil {
		h.nc.Close()
	}
	if h.srv != nil {
		h.srv.Stop()
	}
}
