package publish

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// longestLine is the size of the largest payload that --lines reads: the most that a server can be configured for.
	longestLine = 64 << 20
	// ahead is how many messages may wait for their confirmation: fewer than nats.go allows, which makes a publisher wait.
	ahead = 2048
)

// lines are a message for each line of a reader.
func (p *plan) lines(in io.Reader) iter.Seq2[*nats.Msg, error] {
	return func(yield func(*nats.Msg, error) bool) {
		subject, err := p.subject(fields{Count: 1})
		scan := bufio.NewScanner(in)
		scan.Buffer(make([]byte, 0, 64<<10), longestLine)
		n := 0
		for ; err == nil && scan.Scan(); n++ {
			if !yield(&nats.Msg{Subject: string(subject), Header: p.header, Data: bytes.Clone(scan.Bytes())}, nil) {
				return
			}
		}
		if err == nil && scan.Err() != nil {
			err = fmt.Errorf("read line %d: %w", n+1, scan.Err())
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// publish publishes messages, and returns how many a stream has confirmed. After an error, messages that are not confirmed may be stored.
func publish(ctx context.Context, js jetstream.JetStream, messages iter.Seq2[*nats.Msg, error], wait time.Duration, done func()) (confirmed int, err error) {
	var sent []jetstream.PubAckFuture // and not confirmed
	confirm := func(left int) error {
		for ; len(sent) > left; sent = sent[1:] {
			select {
			case <-sent[0].Ok():
			case err := <-sent[0].Err():
				return fmt.Errorf("message %d: %w", confirmed+1, err)
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(wait):
				return errors.New("no stream confirmed a message for " + wait.String() + "; those that were not confirmed may be stored")
			}
			confirmed++
			done()
		}
		return nil
	}
	for m, err := range messages {
		if err == nil {
			err = confirm(ahead - 1)
		}
		if err != nil {
			return confirmed, err
		}
		f, err := js.PublishMsgAsync(m)
		if err != nil {
			return confirmed, fmt.Errorf("publish message %d to %s: %w", confirmed+len(sent)+1, m.Subject, err)
		}
		sent = append(sent, f)
	}
	err = confirm(0)
	return confirmed, err
}
