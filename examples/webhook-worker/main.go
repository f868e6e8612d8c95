// Webhook-worker is a service that processes the jobs of a pull consumer of the
// webhook broker, only over HTTP, until SIGTERM or Ctrl-C. Then it claims no more
// jobs and lets running handlers finish.
//
// It needs nothing: without -broker it starts a broker of its own, with orders
// to work off. With -broker the tokens come from CHANNEL_TOKEN and
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

// source is whose jobs to work off.
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

// start brings up a broker if there is none to use, and works.
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

// work is the service. It ends with its context, after the running handlers.
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
		// Shorter than what the platform waits between SIGTERM and SIGKILL.
		Drain:   20 * time.Second,
		OnError: func(err error) { log.Print(err) },
	})
	if err != nil {
		return err // the tokens are wrong, or there is no such consumer
	}
	_, err = fmt.Fprintf(out, "worked off %d orders\n", done.Load())
	return err
}

var errNoSuchArticle = errors.New("no such article")

// handle is the work on one order. The claim is kept for as long as it takes.
// Its result decides: nil, the job is done; Fatal, it goes to the dead
// letters; any other error, it is tried again when its claim ends.
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
