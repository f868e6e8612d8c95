package publish

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// longestLine is the size of the largest payload that --lines reads: the most that a server can be configured for.
	longestLine = 64 << 20
	// ahead is how many messages may wait for their confirmation. More of them make nothing faster.
	ahead = 8192
)

// lines are a message for each line of a reader. A message is valid until the next one.
func (p *plan) lines(in io.Reader) iter.Seq2[*nats.Msg, error] {
	return func(yield func(*nats.Msg, error) bool) {
		subject, err := p.subject(fields{Count: 1})
		m := &nats.Msg{Subject: string(subject), Header: p.header}
		scan := bufio.NewScanner(in)
		scan.Buffer(make([]byte, 0, 64<<10), longestLine)
		for n := 1; err == nil; n++ {
			if !scan.Scan() {
				if err = scan.Err(); err == nil {
					return
				}
				err = fmt.Errorf("read line %d: %w", n, err)
				break
			}
			m.Data = scan.Bytes()
			if !yield(m, nil) {
				return
			}
		}
		yield(nil, err)
	}
}

// publish publishes messages, and returns how many a stream has confirmed. The confirmations come to one inbox and are counted, in
// whatever order: that takes half the time of a future for each. After an error, those that are not confirmed may be stored.
func publish(ctx context.Context, nc *nats.Conn, messages iter.Seq2[*nats.Msg, error], wait time.Duration, done func()) (confirmed int, err error) {
	c := &confirmations{done: done, more: make(chan struct{}, 1)}
	inbox := nc.NewInbox()
	sub, err := nc.Subscribe(inbox+".*", c.take)
	if err != nil {
		return 0, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := sub.SetPendingLimits(2*ahead, -1); err != nil {
		return 0, err
	}
	sent := 0
	for m, err := range messages {
		if err == nil {
			err = c.wait(ctx, nc, sent-ahead, wait)
		}
		if err != nil {
			return c.count(), err
		}
		sent++
		m.Reply = inbox + "." + strconv.Itoa(sent)
		if err := nc.PublishMsg(m); err != nil {
			return c.count(), fmt.Errorf("publish message %d to %s: %w", sent, m.Subject, err)
		}
	}
	err = c.wait(ctx, nc, sent, wait)
	return c.count(), err
}

// confirmations counts what the stream answered.
type confirmations struct {
	done func()
	more chan struct{} // has an element after each answer

	mu        sync.Mutex
	confirmed int
	err       error // the first refusal
}

func (c *confirmations) take(m *nats.Msg) {
	err := refusal(m)
	c.mu.Lock()
	if err == nil {
		c.confirmed++
	} else if c.err == nil {
		c.err = fmt.Errorf("message %s: %w", m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], err)
	}
	c.mu.Unlock()
	if err == nil {
		c.done()
	}
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// refusal is the error that an answer carries, or nil.
func refusal(m *nats.Msg) error {
	if m.Header.Get("Status") == "503" {
		return jetstream.ErrNoStreamResponse
	}
	if bytes.HasPrefix(m.Data, []byte(`{"stream":`)) && !bytes.Contains(m.Data, []byte(`"error":`)) {
		return nil
	}
	var answer struct {
		Stream string
		Error  *jetstream.APIError
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Error == nil && answer.Stream == "" {
		return fmt.Errorf("the answer is not that of a stream: %.100q", m.Data)
	}
	if answer.Error != nil {
		return answer.Error
	}
	return nil
}

func (c *confirmations) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.confirmed
}

// wait returns when n messages are confirmed, or with the first refusal, or an error when nothing is confirmed for so long.
func (c *confirmations) wait(ctx context.Context, nc *nats.Conn, n int, long time.Duration) error {
	for flushed := false; ; {
		c.mu.Lock()
		confirmed, err := c.confirmed, c.err
		c.mu.Unlock()
		if err != nil || confirmed >= n {
			return err
		}
		if !flushed {
			// The message that is confirmed next must have been sent.
			if err := nc.FlushTimeout(long); err != nil {
				return err
			}
			flushed = true
			continue
		}
		select {
		case <-c.more:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(long):
			return errors.New("no stream confirmed a message for " + long.String() + "; those that were not confirmed may be stored")
		}
	}
}
