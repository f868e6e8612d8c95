// Dead-letter processes orders. Two of them cannot be shipped and become dead letters. After the cause is repaired, they are requeued and
// processed again.
//
// Without -nats, it starts its own server. It exits when it is done, or on Ctrl-C.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	stream, consumer         = "EXAMPLE_ORDERS", "worker"
	deadStream, deadConsumer = "EXAMPLE_DEAD", "requeue"
	deadSubject              = "example.dead.orders"
	orders, attempts         = 5, 2
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
	remove, err := setUp(ctx, js)
	defer remove()
	if err != nil {
		return err
	}
	for i := range orders {
		if _, err := js.Publish(ctx, "example.orders.new", fmt.Append(nil, i+1), jetstream.WithMsgID(fmt.Sprintf("order-%d", i+1))); err != nil {
			return err
		}
	}
	shop := &shop{out: out, soldOut: map[string]bool{"2": true, "4": true}}
	if err := shop.work(ctx, js, orders); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, "new stock has come")
	shop.soldOut = nil
	n, err := requeue(ctx, js, out)
	if err != nil {
		return err
	}
	return shop.work(ctx, js, n)
}

// shop ships orders, except for those that are sold out.
type shop struct {
	out     io.Writer
	soldOut map[string]bool
}

var errSoldOut = errors.New("sold out")

func (s *shop) ship(_ context.Context, m *jetpull.Msg) error {
	if s.soldOut[string(m.Data())] {
		return errSoldOut
	}
	return nil
}

// work handles messages until n of them are shipped or have become dead letters.
func (s *shop) work(ctx context.Context, js jetstream.JetStream, n int) error {
	sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	var shipped, dead atomic.Int64
	over := func() {
		if shipped.Load()+dead.Load() == int64(n) {
			enough()
		}
	}
	err = sub.Consume(ctx, func(ctx context.Context, m *jetpull.Msg) error {
		err := s.ship(ctx, m)
		if err == nil {
			shipped.Add(1)
			over()
		}
		return err
	},
		jetpull.MaxAttempts(attempts),
		jetpull.RetryDelays(50*time.Millisecond),
		jetpull.DeadLetter(deadSubject), // a stream must store this subject
		jetpull.OnEvent(func(e jetpull.Event) {
			// One event for each failed attempt, for a log, a counter or an alarm.
			_, _ = fmt.Fprintf(s.out, "order %s, attempt %d: %s: %v\n", e.Msg.Data(), e.Attempt, e.Outcome, e.Err)
			if e.Outcome == jetpull.DeadLettered {
				dead.Add(1)
				over()
			}
		}),
		jetpull.Logger(slog.New(slog.DiscardHandler)), // the events are enough
	)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "%d shipped, %d dead\n", shipped.Load(), dead.Load())
	return err
}

// requeue publishes the original message of each dead letter again, and returns the number of dead letters.
func requeue(ctx context.Context, js jetstream.JetStream, out io.Writer) (int, error) {
	sub, err := jetpull.Subscribe(ctx, js, deadStream, deadConsumer)
	if err != nil {
		return 0, err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	for n := 0; ; n++ {
		// Do not use NoWait here: the server may have stored a message that the consumer does not see for another moment.
		dead, err := sub.Next(ctx, jetpull.MaxWait(time.Second))
		if errors.Is(err, jetpull.ErrTimeout) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		h := dead.Headers()
		// Anyone who may publish to the dead-letter subject can set these headers. Check them before publishing to the subject that they name.
		if h.Get(jetpull.HeaderDeadStream) != stream || !strings.HasPrefix(h.Get(jetpull.HeaderDeadSubject), "example.orders.") {
			return n, fmt.Errorf("dead letter %d is not of an order: %v", dead.Sequence(), h)
		}
		again := nats.NewMsg(h.Get(jetpull.HeaderDeadSubject))
		again.Data = dead.Data()
		maps.Copy(again.Header, h)
		maps.DeleteFunc(again.Header, func(key string, _ []string) bool {
			return strings.HasPrefix(key, "Dead-Letter-") || strings.HasPrefix(key, "Nats-")
		})
		// Do not reuse the original ID: the stream may still remember it, and would drop the message as a duplicate. The ID contains the dead
		// letter's sequence, so that a requeue that is interrupted and repeated stores the message once.
		id := fmt.Sprintf("%s-requeued-%d", cmp.Or(h.Get(jetpull.HeaderDeadMsgID), "message"), dead.Sequence())
		if _, err := js.PublishMsg(ctx, again, jetstream.WithMsgID(id), jetstream.WithExpectStream(stream)); err != nil {
			return n, err
		}
		// Acknowledge the dead letter only after the stream has stored the message.
		if err := dead.DoubleAck(ctx); err != nil {
			return n, err
		}
		if _, err := fmt.Fprintf(out, "requeued order %s of sequence %s, which was tried %s times: %s\n", dead.Data(),
			h.Get(jetpull.HeaderDeadSequence), h.Get(jetpull.HeaderDeadAttempts), h.Get(jetpull.HeaderDeadReason)); err != nil {
			return n, err
		}
	}
}

// setUp creates the streams of orders and of dead letters, with a consumer for each.
func setUp(ctx context.Context, js jetstream.JetStream) (remove func(), err error) {
	remove = func() {}
	for _, s := range []struct{ stream, subjects, consumer string }{
		{stream, "example.orders.>", consumer},
		{deadStream, "example.dead.>", deadConsumer},
	} {
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: s.stream, Subjects: []string{s.subjects}}); err != nil {
			return remove, err
		}
		before := remove
		remove = func() {
			_ = js.DeleteStream(context.WithoutCancel(ctx), s.stream)
			before()
		}
		if _, err := js.CreateConsumer(ctx, s.stream, jetstream.ConsumerConfig{Durable: s.consumer}); err != nil {
			return remove, err
		}
	}
	return remove, nil
}
