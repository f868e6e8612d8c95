package measure

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
)

// bareReader is the least that a program can do on a nats.Conn to pull: one inbox and one channel for all its pulls,
// which it publishes by hand, as it does its acks. It is the limit for each client that stands on nats.go's connection.
type bareReader struct {
	round    *Round
	pull     string
	inbox    string
	messages chan *nats.Msg
	request  []byte // of the last pull
	asked    int    // its batch
	batch    []*nats.Msg
}

// newBareReader returns a reader for pulls of up to most messages.
func newBareReader(r *Round, most int) (*bareReader, error) {
	b := &bareReader{round: r, pull: r.pullSubject(), inbox: r.Conn.NewInbox(), messages: make(chan *nats.Msg, most+1)}
	_, err := r.Conn.ChanSubscribe(b.inbox, b.messages)
	return b, err
}

// appendPull appends a no-wait pull with an expiry. Without one the server refuses it where other pulls wait, and sends a
// part of the batch and no status where MaxAckPending is reached because it has not read the acks yet.
func appendPull(dst []byte, batch int) []byte {
	return fmt.Appendf(dst, `{"batch":%d,"no_wait":true,"expires":30000000000}`, batch)
}

// fetch reads n messages with one pull and then acknowledges each.
func (b *bareReader) fetch(ctx context.Context, n int) error {
	if n != b.asked {
		b.request, b.asked = appendPull(b.request[:0], n), n
	}
	if err := b.round.Conn.PublishRequest(b.pull, b.inbox, b.request); err != nil {
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
		if err := b.round.Conn.Publish(m.Reply, wireAck); err != nil {
			return err
		}
	}
	return nil
}

// receive returns the next message. A status is an error: the stream has a message for every pull.
func (b *bareReader) receive(ctx context.Context) (*nats.Msg, error) {
	select {
	case m := <-b.messages:
		if m.Reply == "" {
			return nil, fmt.Errorf("a pull ended with status %s", m.Header.Get("Status"))
		}
		b.round.Receive(m.Data)
		return m, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// chanNext gives each goroutine a reader of its own.
func chanNext(goroutines int) func(context.Context, *Round) error {
	return func(ctx context.Context, r *Round) error {
		return r.work(ctx, goroutines, func(ctx context.Context) (func() error, error) {
			b, err := newBareReader(r, 1)
			return func() error { return b.fetch(ctx, 1) }, err
		})
	}
}

// chanAckNext acknowledges each message and pulls the next one in one request.
func chanAckNext(ctx context.Context, r *Round) error {
	b, err := newBareReader(r, 1)
	if err != nil {
		return err
	}
	first := appendPull(nil, 1)
	next := append([]byte("+NXT "), first...)
	r.Start()
	if err := r.Conn.PublishRequest(b.pull, b.inbox, first); err != nil {
		return err
	}
	for range r.Messages - 1 {
		m, err := b.receive(ctx)
		if err != nil {
			return err
		}
		if err := r.Conn.PublishRequest(m.Reply, b.inbox, next); err != nil {
			return err
		}
	}
	m, err := b.receive(ctx)
	if err != nil {
		return err
	}
	if err := r.Conn.Publish(m.Reply, wireAck); err != nil {
		return err
	}
	return r.Stop(ctx)
}

func chanFetch(batch int) func(context.Context, *Round) error {
	return func(ctx context.Context, r *Round) error {
		b, err := newBareReader(r, batch)
		if err != nil {
			return err
		}
		r.Start()
		for left := r.Messages; left > 0; left -= batch {
			if err := b.fetch(ctx, min(batch, left)); err != nil {
				return err
			}
		}
		return r.Stop(ctx)
	}
}
