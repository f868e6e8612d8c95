package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/webhook"
	"github.com/jetpull/jetpull/natsembed"
)

// naiveWorkers is how many workers there are; each has one message at a time.
const naiveWorkers = 64

// benchNaive measures the path without any of what the relay is for: publish, take, POST, acknowledge.
func benchNaive(ctx context.Context, s settings) ([]figure, error) {
	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	receiver := newCounter(s.messages)
	defer receiver.Close()
	begin := time.Now()
	p, err := startChild(ctx, s, childEnv+"_NAIVE="+receiver.URL, childEnv+"_MESSAGES="+strconv.Itoa(s.messages))
	if err != nil {
		return nil, err
	}
	defer p.close()
	up := time.Since(begin)
	if err := receiver.wait(ctx); err != nil {
		return nil, err
	}
	return []figure{{"naive, messages/s", float64(s.messages) / (time.Since(begin) - up).Seconds()}}, nil
}

func runNaive(ctx context.Context, dir, target string) error {
	n, err := strconv.Atoi(os.Getenv(childEnv + "_MESSAGES"))
	if err != nil {
		return err
	}
	srv, err := natsembed.Start(ctx, natsembed.Options{Dir: dir, Port: natsembed.NoPort})
	if err != nil {
		return err
	}
	defer srv.Stop()
	nc, err := srv.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "naive", Subjects: []string{"naive"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
		return err
	}
	if _, err := js.CreateConsumer(ctx, "naive", jetstream.ConsumerConfig{Durable: "naive", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		return err
	}
	sub, err := jetpull.Subscribe(ctx, js, "naive", "naive")
	if err != nil {
		return err
	}
	client := webhook.NewClient(webhook.Policy{Any: true}, time.Minute)
	fmt.Println("ready")
	for range n {
		if _, err := js.PublishAsync("naive", payload); err != nil {
			return err
		}
	}
	return sub.Consume(ctx, func(ctx context.Context, m *jetpull.Msg) error {
		return client.Post(ctx, target, http.Header{}, m.Data())
	}, jetpull.Concurrency(naiveWorkers))
}
