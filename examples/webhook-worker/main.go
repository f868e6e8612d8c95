// Webhook-worker is a service that processes the jobs of a pull consumer of the webhook broker, using only HTTP. On SIGTERM or Ctrl-C, it
// claims no more jobs, and lets running handlers finish.
//
// Without -broker, it starts its own broker and broadcasts orders to process. With -broker, it reads the tokens from CHANNEL_TOKEN and
// CONSUMER_TOKEN.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jetpull/jetpull/broker/client"
)

// source is the pull consumer whose jobs are processed.
type source struct {
	url                     string // of the broker
	channel, channelToken   string
	consumer, consumerToken string
}

func main() {
	var from source
	flag.StringVar(&from.url, "broker", "", "URL of the broker; empty starts one in this process")
	flag.StringVar(&from.channel, "channel", "orders", "ID of the channel")
	flag.StringVar(&from.consumer, "consumer", "warehouse", "ID of the pull consumer")
	flag.Parse()
	from.channelToken, from.consumerToken = os.Getenv("CHANNEL_TOKEN"), os.Getenv("CONSUMER_TOKEN")

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, from, os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// start calls work, with a broker of its own if from has no URL.
func start(ctx context.Context, from source, out io.Writer) error {
	if from.url == "" {
		var stop func()
		var err error
		if from, stop, err = startBroker(ctx); err != nil {
			return err
		}
		defer stop()
	}
	return work(ctx, from, out, handle)
}

// work is the service. When ctx ends, it waits for the running handlers and returns.
func work(ctx context.Context, from source, out io.Writer, handle client.Handler) error {
	consumer := client.New(from.url, nil).Consumer(from.channel, from.channelToken, from.consumer, from.consumerToken)
	var done atomic.Int64
	err := consumer.Consume(ctx, func(ctx context.Context, j *client.Job) error {
		err := handle(ctx, j)
		if err == nil {
			done.Add(1)
		}
		return err
	}, client.Options{
		Concurrency: 4,
		// Must be shorter than the platform's wait between SIGTERM and SIGKILL.
		Drain:   20 * time.Second,
		OnError: func(err error) { log.Print(err) },
	})
	if err != nil {
		return err // a token is wrong, or the consumer does not exist
	}
	_, err = fmt.Fprintf(out, "worked off %d orders\n", done.Load())
	return err
}

var errNoSuchArticle = errors.New("no such article")

// handle handles one order. Its claim is extended while handle runs. If handle returns nil, the job is done. If it returns a Fatal error,
// the job becomes a dead letter. After any other error, the job is retried when its claim ends.
func handle(ctx context.Context, j *client.Job) error {
	if len(bytes.TrimSpace(j.Payload)) == 0 {
		return client.Fatal(fmt.Errorf("order %s: %w", j.MessageID, errNoSuchArticle))
	}
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done(): // the claim was lost, or Drain is over
		return fmt.Errorf("order %s: %w", j.MessageID, context.Cause(ctx))
	}
}
