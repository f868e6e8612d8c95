package jsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker"
)

const (
	// commitTimeout bounds the wait for the answer to one write.
	commitTimeout = 10 * time.Second
	// retryFor bounds how long a write is repeated that the server has surely
	// not taken: there was nobody to take it.
	retryFor   = 5 * time.Second
	retryPause = 50 * time.Millisecond
)

// committer writes to one stream. Concurrent writes go out side by side, and
// share a sync where the broker does the syncing.
type committer struct {
	nc   *nats.Conn
	name string // of the stream, for errors
	sync *groupSync
	stop chan struct{}
}

func newCommitter(nc *nats.Conn, name, syncDir string) *committer {
	c := &committer{nc: nc, name: name, stop: make(chan struct{})}
	if syncDir != "" {
		c.sync = newGroupSync(syncDir, name)
	}
	return c
}

// close waits for the sync in progress. Writes that are not durable yet fail.
func (c *committer) close() {
	close(c.stop)
	if c.sync != nil {
		c.sync.close()
	}
}

// commit stores one message, if the last sequence of its subject is the
// expected one, and returns its sequence. When it returns broker.ErrConflict or
// another refusal of the server, nothing was stored; after another
// broker.ErrUnavailable or the end of ctx that is not known.
func (c *committer) commit(ctx context.Context, msg *nats.Msg, expect uint64) (uint64, error) {
	if msg.Header == nil {
		msg.Header = make(nats.Header, 1)
	}
	msg.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(expect, 10)}
	deadline := time.Now().Add(retryFor)
	for {
		ack, err := c.request(ctx, msg)
		if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(deadline) {
			return ack.Seq, err
		}
		select {
		case <-c.stop:
			return 0, fmt.Errorf("%w: the broker is shutting down", broker.ErrUnavailable)
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(retryPause):
		}
	}
}

// durable returns once all that was committed before the call is on disk, as
// far as that is up to the broker.
func (c *committer) durable(ctx context.Context) error {
	if c.sync == nil {
		return nil
	}
	if err := c.sync.wait(ctx); err != nil {
		return fmt.Errorf("%w: sync stream %s: %w", broker.ErrUnavailable, c.name, err)
	}
	return nil
}

type pubAck struct {
	Error *jetstream.APIError `json:"error"`
	Seq   uint64              `json:"seq"`
}

func (c *committer) request(ctx context.Context, msg *nats.Msg) (pubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	reply, err := c.nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return pubAck{}, fmt.Errorf("%w: stream %s: %w", broker.ErrUnavailable, c.name, err)
	}
	var ack pubAck
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return pubAck{}, fmt.Errorf("%w: stream %s answered %q: %w", broker.ErrUnavailable, c.name, reply.Data, err)
	}
	if ack.Error != nil {
		return pubAck{}, c.refused(ack.Error)
	}
	return ack, nil
}

// refused tells what an error means that the server answered with.
func (c *committer) refused(api *jetstream.APIError) error {
	switch api.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return broker.ErrConflict
	case jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return fmt.Errorf("%w: stream %s: %w", broker.ErrTooLarge, c.name, api)
	}
	return fmt.Errorf("%w: stream %s refused a message: %w", broker.ErrUnavailable, c.name, api)
}
