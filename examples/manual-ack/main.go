// Manual-ack passes payments to a provider that answers later, and in any order. The handler returns at once. A payment is acknowledged
// when its answer arrives; until then, the server does not redeliver it.
//
// Without -nats, it starts its own server. It exits when all payments are settled. On Ctrl-C, it waits for the outstanding answers and
// exits.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	stream, consumer, subject = "EXAMPLE_MANUAL", "payments", "example.manual"
	payments                  = 20
	window                    = 8 // maximum number of payments without an answer
)

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
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{subject}}); err != nil {
		return err
	}
	defer func() { _ = js.DeleteStream(context.WithoutCancel(ctx), stream) }()
	if _, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer}); err != nil {
		return err
	}
	for i := range payments {
		if _, err := js.Publish(ctx, subject, fmt.Appendf(nil, "payment-%d", i+1)); err != nil {
			return err
		}
	}

	sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	ctx, done := context.WithCancel(ctx)
	defer done()
	t := &till{provider: &provider{}, open: map[string]*jetpull.Msg{}, done: done}
	// At most window messages are read ahead or unsettled. When ctx ends, Consume waits until the unsettled ones are settled.
	if err := sub.Consume(ctx, t.pay, jetpull.ManualAck(), jetpull.Prefetch(window)); err != nil {
		return err
	}
	info, err := sub.Info(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%d paid, %d tried again, at most %d open; the server has %d unacknowledged and %d to deliver\n",
		t.paid, t.again, t.most, info.NumAckPending, info.NumPending)
	return err
}

// till holds the messages of payments without an answer, by payment ID.
type till struct {
	provider *provider
	done     func()

	mu                sync.Mutex
	open              map[string]*jetpull.Msg
	paid, again, most int
}

// pay is the handler. With ManualAck, returning nil does not settle the message. Returning an error would.
func (t *till) pay(_ context.Context, m *jetpull.Msg) error {
	id := string(m.Data())
	t.mu.Lock()
	t.open[id] = m
	t.most = max(t.most, len(t.open))
	t.mu.Unlock()
	t.provider.charge(id, t.answered)
	return nil
}

// answered settles the message of a payment. The provider calls it on its own goroutine.
func (t *till) answered(id string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.open[id]
	if m == nil {
		return // already settled by the answer to an earlier delivery, after a lost connection
	}
	delete(t.open, id)
	if err != nil {
		t.again++
		err = m.Nak()
	} else {
		t.paid++
		err = m.Ack()
	}
	if err != nil {
		log.Printf("%s will be delivered again: %v", id, err)
	}
	if t.paid == payments {
		t.done()
	}
}

// provider simulates a service with callbacks. Every seventh charge fails.
type provider struct {
	mu    sync.Mutex
	calls int
}

var errOutOfOrder = errors.New("out of order")

func (p *provider) charge(id string, answer func(id string, err error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	var err error
	if p.calls%7 == 0 {
		err = errOutOfOrder
	}
	time.AfterFunc(time.Duration(p.calls%5+1)*10*time.Millisecond, func() { answer(id, err) })
}
