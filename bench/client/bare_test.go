package client

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
)

// bareReader does the minimum on nats.go's connection. It has one inbox and one channel for all of its pulls, and publishes pulls
// and acks itself. No client on this connection can read messages with less work.
type bareReader struct {
	round    *round
	inbox    string
	messages chan *nats.Msg
	batch    []*nats.Msg
}

// newBareReader returns a reader for pulls of up to most messages.
func newBareReader(r *round, most int) (*bareReader, error) {
	b := &bareReader{round: r, inbox: r.js.Conn().NewInbox(), messages: make(chan *nats.Msg, most+1)}
	_, err := r.js.Conn().ChanSubscribe(b.inbox, b.messages)
	return b, err
}

// pull requests n messages. Without an expiry, the server would refuse the request while others wait.
func (b *bareReader) pull(n int) error {
	subject := "$JS.API.CONSUMER.MSG.NEXT." + b.round.stream + "." + consumerName
	return b.round.js.Conn().PublishRequest(subject, b.inbox, fmt.Appendf(nil, `{"batch":%d,"no_wait":true,"expires":30000000000}`, n))
}

// receive returns the next message. A status is an error: the stream has a message for every pull.
func (b *bareReader) receive(ctx context.Context) (*nats.Msg, error) {
	select {
	case m := <-b.messages:
		if m.Reply == "" {
			return nil, fmt.Errorf("a pull ended with status %s", m.Header.Get("Status"))
		}
		b.round.receive(m.Data)
		return m, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fetch reads n messages with one pull, and then acknowledges each.
func (b *bareReader) fetch(ctx context.Context, n int) error {
	if err := b.pull(n); err != nil {
		return err
	}
	b.batch = b.batch[:0]
	for range n {
		m, err := b.receive(ctx)
		if err != nil {
			return err
		}
		b.batch = append(b.batch, m)
	}
	for _, m := range b.batch {
		if err := b.ack(m); err != nil {
			return err
		}
	}
	return nil
}

func (b *bareReader) ack(m *nats.Msg) error {
	return b.round.js.Conn().Publish(m.Reply, []byte("+ACK"))
}

// bareNext gives each goroutine its own reader.
func bareNext(goroutines int) work {
	return func(ctx context.Context, r *round) error {
		idle := make(chan *bareReader, goroutines)
		for range goroutines {
			b, err := newBareReader(r, 1)
			if err != nil {
				return err
			}
			idle <- b
		}
		return r.onGoroutines(ctx, goroutines, func(ctx context.Context) error {
			b := <-idle
			defer func() { idle <- b }()
			return b.fetch(ctx, 1)
		})
	}
}

// bareAckNext acknowledges each message and pulls the next one in one request.
func bareAckNext(ctx context.Context, r *round) error {
	b, err := newBareReader(r, 1)
	if err != nil {
		return err
	}
	r.start()
	if err := b.pull(1); err != nil {
		return err
	}
	for range r.n - 1 {
		m, err := b.receive(ctx)
		if err != nil {
			return err
		}
		if err := r.js.Conn().PublishRequest(m.Reply, b.inbox, []byte(`+NXT {"batch":1,"no_wait":true,"expires":30000000000}`)); err != nil {
			return err
		}
	}
	m, err := b.receive(ctx)
	if err != nil {
		return err
	}
	if err := b.ack(m); err != nil {
		return err
	}
	return r.stop(ctx)
}

func bareFetch(batch int) work {
	return func(ctx context.Context, r *round) error {
		b, err := newBareReader(r, batch)
		if err != nil {
			return err
		}
		r.start()
		for left := r.n; left > 0; left -= batch {
			if err := b.fetch(ctx, min(batch, left)); err != nil {
				return err
			}
		}
		return r.stop(ctx)
	}
}
