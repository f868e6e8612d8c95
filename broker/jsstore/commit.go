package jsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/jetpull/jetpull/broker"
)

const (
	// maxGroup and maxGroupBytes bound a group. The server takes 1,000 messages.
	maxGroup      = 500
	maxGroupBytes = 4 << 20
	// batchFrom is the size from which a group is sent as an atomic batch. A
	// batch costs the server a store of its own, so one or two writes are
	// cheaper alone, even where each is synced.
	batchFrom = 3
	// commitTimeout bounds the wait for the answer to one write or batch.
	commitTimeout = 10 * time.Second
	// retryFor bounds how long a write is repeated that the server has surely
	// not taken: there was nobody to take it.
	retryFor   = 5 * time.Second
	retryPause = 50 * time.Millisecond
)

// write is one message with the sequence its subject must have now.
type write struct {
	subject string
	header  nats.Header
	data    []byte
	expect  uint64
	result  chan result
}

type result struct {
	seq uint64
	err error
}

// committer publishes the writes of concurrent callers to one stream in groups.
// While a group is on its way the next one gathers, so a lone write goes at
// once and the size of groups follows from the load and the cost of a sync.
type committer struct {
	nc   *nats.Conn
	name string // of the stream, for errors
	in   chan *write
	stop chan struct{}
	done sync.WaitGroup
}

func newCommitter(nc *nats.Conn, name string) *committer {
	c := &committer{nc: nc, name: name, in: make(chan *write, maxGroup), stop: make(chan struct{})}
	c.done.Go(c.run)
	return c
}

// close waits for the group that is on its way. Writes that were not sent fail.
func (c *committer) close() {
	close(c.stop)
	c.done.Wait()
}

// commit stores one message, if the last sequence of its subject is the
// expected one, and returns its sequence. When it returns broker.ErrConflict or
// an error of the server, nothing was stored; after broker.ErrUnavailable or
// the end of ctx that is not known.
func (c *committer) commit(ctx context.Context, subject string, header nats.Header, data []byte, expect uint64) (uint64, error) {
	w := &write{subject: subject, header: header, data: data, expect: expect, result: make(chan result, 1)}
	select {
	case c.in <- w:
	case <-c.stop:
		return 0, fmt.Errorf("%w: the broker is shutting down", broker.ErrUnavailable)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	select {
	case r := <-w.result:
		return r.seq, r.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-c.stop:
		// The loop may have answered while it was ending.
		c.done.Wait()
		select {
		case r := <-w.result:
			return r.seq, r.err
		default:
			return 0, fmt.Errorf("%w: the broker is shutting down", broker.ErrUnavailable)
		}
	}
}

func (c *committer) run() {
	var next *write
	for {
		first := next
		next = nil
		if first == nil {
			select {
			case first = <-c.in:
			case <-c.stop:
				return
			}
		}
		var group []*write
		group, next = c.gather(first)
		c.send(group)
	}
}

// gather takes what waits. A second write to a subject, which must see the
// first one's outcome, is left for the next group.
func (c *committer) gather(first *write) (group []*write, next *write) {
	group = append(make([]*write, 0, 16), first)
	subjects := map[string]struct{}{first.subject: {}}
	size := len(first.data)
	for len(group) < maxGroup && size < maxGroupBytes {
		select {
		case w := <-c.in:
			if _, twice := subjects[w.subject]; twice {
				return group, w
			}
			subjects[w.subject] = struct{}{}
			group = append(group, w)
			size += len(w.data)
		default:
			return group, nil
		}
	}
	return group, nil
}

func (c *committer) send(group []*write) {
	if len(group) >= batchFrom && c.sendBatch(group) {
		return
	}
	if len(group) == 1 {
		group[0].settle(c.sendOne(group[0]))
		return
	}
	var wg sync.WaitGroup
	for _, w := range group {
		wg.Go(func() { w.settle(c.sendOne(w)) })
	}
	wg.Wait()
}

func (w *write) settle(seq uint64, err error) { w.result <- result{seq, err} }

func (w *write) message() *nats.Msg {
	msg := &nats.Msg{Subject: w.subject, Data: w.data, Header: make(nats.Header, len(w.header)+4)}
	for k, v := range w.header {
		msg.Header[k] = v
	}
	msg.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(w.expect, 10)}
	return msg
}

// sendBatch publishes a group as one atomic batch and reports whether that
// settled it. It did not when the server refused the batch, which it does as a
// whole: then each write has to be tried alone, to find the one that failed.
func (c *committer) sendBatch(group []*write) bool {
	id := nuid.Next()
	for i, w := range group[:len(group)-1] {
		msg := w.message()
		msg.Header["Nats-Batch-Id"] = []string{id}
		msg.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		if err := c.nc.PublishMsg(msg); err != nil {
			return false
		}
	}
	msg := group[len(group)-1].message()
	msg.Header["Nats-Batch-Id"] = []string{id}
	msg.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(len(group))}
	msg.Header["Nats-Batch-Commit"] = []string{"1"}
	ack, err := c.request(msg)
	var refused *refusal
	if errors.As(err, &refused) || errors.Is(err, nats.ErrNoResponders) {
		return false
	}
	for i, w := range group {
		if err != nil {
			w.settle(0, err)
			continue
		}
		w.settle(ack.Seq-uint64(len(group)-1-i), nil)
	}
	return true
}

// sendOne publishes one write, again while there is nobody to take it.
func (c *committer) sendOne(w *write) (uint64, error) {
	deadline := time.Now().Add(retryFor)
	for {
		ack, err := c.request(w.message())
		if err == nil {
			return ack.Seq, nil
		}
		var refused *refusal
		if errors.As(err, &refused) {
			return 0, refused.domain()
		}
		if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(deadline) {
			return 0, err
		}
		select {
		case <-c.stop:
			return 0, err
		case <-time.After(retryPause):
		}
	}
}

// refusal is an error that the server answered with: nothing was stored.
type refusal struct {
	stream string
	api    jetstream.APIError
}

func (r *refusal) Error() string {
	return fmt.Sprintf("stream %s refused a message: %s (%d)", r.stream, r.api.Description, r.api.ErrorCode)
}

func (r *refusal) domain() error {
	switch r.api.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return broker.ErrConflict
	case jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return fmt.Errorf("%w: %w", broker.ErrTooLarge, r)
	}
	return fmt.Errorf("%w: %w", broker.ErrUnavailable, r)
}

type pubAck struct {
	Error *jetstream.APIError `json:"error"`
	Seq   uint64              `json:"seq"`
}

func (c *committer) request(msg *nats.Msg) (pubAck, error) {
	reply, err := c.nc.RequestMsg(msg, commitTimeout)
	if err != nil {
		return pubAck{}, fmt.Errorf("%w: stream %s: %w", broker.ErrUnavailable, c.name, err)
	}
	var ack pubAck
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return pubAck{}, fmt.Errorf("%w: stream %s answered %q: %w", broker.ErrUnavailable, c.name, reply.Data, err)
	}
	if ack.Error != nil {
		return pubAck{}, &refusal{c.name, *ack.Error}
	}
	return ack, nil
}
