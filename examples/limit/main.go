// Limit calls a bank that allows ten calls a second for each customer, and two at a time. Two workers share these limits in a key-value
// bucket. Each has its own connection, as two processes would. While one customer's payments wait, those of other customers continue.
//
// Without -nats, it starts its own server. It exits when all payments are handled, or on Ctrl-C.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/limit"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	stream, consumer, subjects = "EXAMPLE_LIMIT", "worker", "example.payments.*"
	bucket                     = "example_limits"
	workers, ofAda, ofGrace    = 2, 30, 5
)

// allowed is the bank's limit for each customer. All processes must use the same values.
var allowed = limit.Config{Rate: 10, Window: time.Second, Concurrent: 2}

func main() {
	url := flag.String("nats", "", "server to use; empty starts one in this process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *url, os.Stdout)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// bank counts the calls of each customer, and the maximum number that ran at a time.
type bank struct {
	mu            sync.Mutex
	calls         map[string]int
	running, most map[string]int
}

func (b *bank) call(ctx context.Context, customer string) error {
	b.begin(customer)
	defer b.end(customer)
	select {
	case <-time.After(20 * time.Millisecond): // the duration of a call
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *bank) begin(customer string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[customer]++
	b.running[customer]++
	b.most[customer] = max(b.most[customer], b.running[customer])
}

func (b *bank) end(customer string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[customer]--
}

func run(ctx context.Context, url string, out io.Writer) error {
	nc, stop, err := natsembed.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer stop()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if err := publish(ctx, js); err != nil {
		return err
	}
	defer func() { _ = js.DeleteStream(context.WithoutCancel(ctx), stream) }()
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket, TTL: time.Hour})
	if err != nil {
		return err
	}
	defer func() { _ = js.DeleteKeyValue(context.WithoutCancel(ctx), kv.Bucket()) }()

	b := &bank{calls: map[string]int{}, running: map[string]int{}, most: map[string]int{}}
	begun := time.Now()
	if err := work(ctx, nc.ConnectedUrl(), b); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d calls for ada in %v, at most %d at a time; %d for grace\n", b.calls["ada"], time.Since(begun).Round(time.Second),
		b.most["ada"], b.calls["grace"])
	return err
}

// publish stores the payments of ada, followed by those of grace.
func publish(ctx context.Context, js jetstream.JetStream) error {
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{subjects}}); err != nil {
		return err
	}
	if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer}); err != nil {
		return err
	}
	for i := range ofAda + ofGrace {
		customer := "ada"
		if i >= ofAda {
			customer = "grace"
		}
		if _, err := js.Publish(ctx, "example.payments."+customer, nil); err != nil {
			return err
		}
	}
	return nil
}

// work runs the workers until all payments are handled.
func work(ctx context.Context, url string, b *bank) error {
	ctx, done := context.WithCancel(ctx)
	defer done()
	var handled atomic.Int64
	errs := make(chan error, workers)
	for range workers {
		go func() {
			err := worker(ctx, url, func(ctx context.Context, m *jetpull.Msg) error {
				err := b.call(ctx, customer(m))
				if err == nil && handled.Add(1) == ofAda+ofGrace {
					done()
				}
				return err
			})
			done()
			errs <- err
		}()
	}
	var err error
	for range workers {
		err = cmp.Or(err, <-errs)
	}
	return err
}

// customer returns the key of the limit: the last token of the subject.
func customer(m *jetpull.Msg) string { return m.Subject()[len("example.payments."):] }

// worker handles payments until ctx ends. In production, each process would do this.
func worker(ctx context.Context, url string, h jetpull.Handler) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		return err
	}
	calls, err := limit.Open(ctx, kv, "bank", allowed)
	if err != nil {
		return err
	}
	sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
	if err != nil {
		return errors.Join(err, calls.Close(context.WithoutCancel(ctx)))
	}
	err = sub.Consume(ctx, h, jetpull.Limited(calls, customer), jetpull.Concurrency(8))
	return errors.Join(err, sub.Close(context.WithoutCancel(ctx)), calls.Close(context.WithoutCancel(ctx)))
}
