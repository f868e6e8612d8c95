package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/client"
)

// orders is the number of orders that startBroker broadcasts.
const orders = 300

// startBroker runs a broker in this process instead of in a "jetpull broker" process, and broadcasts orders. One of them is blank.
func startBroker(ctx context.Context) (own source, stop func(), err error) {
	own = source{channel: "orders", channelToken: "channel-secret", consumer: "warehouse", consumerToken: "warehouse-secret"}
	dir, err := os.MkdirTemp("", "webhook-worker-")
	if err != nil {
		return own, nil, err
	}
	cfg := broker.DefaultConfig()
	cfg.HTTP.Listener = "127.0.0.1:0"
	cfg.NATS.StoreDir = dir
	cfg.Seed = broker.SeedData{
		Channels:  []broker.SeedItem{{ID: own.channel, Name: "Orders", Token: own.channelToken}},
		Producers: []broker.SeedItem{{ID: "shop", Name: "Shop", Token: "shop-secret"}},
		Consumers: []broker.SeedConsumer{{
			SeedItem: broker.SeedItem{ID: own.consumer, Name: "Warehouse", Token: own.consumerToken},
			Channel:  own.channel, CallbackURL: "http://127.0.0.1/", Type: broker.Pull,
		}},
	}
	n, err := broker.Start(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return own, nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop = func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = n.Stop(stopping)
		_ = os.RemoveAll(dir)
	}
	own.url = n.URL()
	if err := broadcast(ctx, own); err != nil {
		stop()
		return own, nil, err
	}
	return own, stop, nil
}

// broadcast publishes the orders as the producer does.
func broadcast(ctx context.Context, own source) error {
	c := client.New(own.url, nil)
	shop := client.Producer{Channel: own.channel, ChannelToken: own.channelToken, ID: "shop", Token: "shop-secret"}
	for i := range orders {
		m := client.Message{ID: fmt.Sprintf("order-%d", i+1), Payload: []byte("two chairs")}
		if i == 2 {
			m.Payload = []byte(" ")
		}
		if _, err := c.Broadcast(ctx, shop, m); err != nil {
			return err
		}
	}
	return nil
}
