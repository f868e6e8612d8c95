package main

import (
	"context"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/relay"
)

// A system does not start on the store of another one, or on that of a server with streams of its own.
func TestStoresOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	startBroker := func(dir string) error {
		cfg := broker.DefaultConfig()
		cfg.HTTP.Listener, cfg.NATS.StoreDir = "127.0.0.1:0", dir
		n, err := broker.Start(t.Context(), cfg, quiet)
		if err == nil {
			err = n.Stop(context.Background())
		}
		return err
	}
	startRelay := func(dir string) error {
		cfg := relay.DefaultConfig()
		cfg.HTTP.Listener, cfg.NATS.StoreDir = "127.0.0.1:0", dir
		n, err := relay.Start(t.Context(), cfg, quiet)
		if err == nil {
			err = n.Stop(context.Background())
		}
		return err
	}
	brokers, relays, plain := t.TempDir(), t.TempDir(), t.TempDir()
	for range 2 {
		require.NoError(t, startBroker(brokers))
		require.NoError(t, startRelay(relays))
	}
	srv, err := natsembed.Start(t.Context(), natsembed.Options{Dir: plain, Port: natsembed.NoPort})
	require.NoError(t, err)
	nc, err := srv.Connect()
	require.NoError(t, err)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	require.NoError(t, err)
	nc.Close()
	srv.Stop()

	require.ErrorContains(t, startRelay(brokers), "store-dir "+brokers+": it is the store of a broker: it has the stream ")
	require.ErrorContains(t, startBroker(relays), "store-dir "+relays+": it is the store of a relay: it has the stream ")
	require.ErrorContains(t, startBroker(plain), "it is the store of another program: it has the stream ORDERS; give the broker a folder of its own")
	require.ErrorContains(t, startRelay(plain), "it is the store of another program: it has the stream ORDERS; give the relay a folder of its own")
	require.NoError(t, startBroker(brokers), "the refusal has changed nothing")
}
