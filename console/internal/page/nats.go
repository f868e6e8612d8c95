package page

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// NATS is what the pages need of a NATS account.
type NATS interface {
	ConsumerSource
	MessageSource
}

// JetStream is the source of consumers and messages that an account of a NATS server is.
type JetStream struct{ JS jetstream.JetStream }

// Consumers implements [ConsumerSource].
func (j JetStream) Consumers(ctx context.Context) ([]*jetstream.ConsumerInfo, error) {
	var all []*jetstream.ConsumerInfo
	streams := j.JS.ListStreams(ctx)
	for info := range streams.Info() {
		if info.State.Consumers == 0 {
			continue
		}
		stream, err := j.JS.Stream(ctx, info.Config.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // it was deleted since it was listed
		}
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", info.Config.Name, err)
		}
		consumers := stream.ListConsumers(ctx)
		for c := range consumers.Info() {
			all = append(all, c)
		}
		if err := consumers.Err(); err != nil {
			return nil, fmt.Errorf("consumers of stream %s: %w", info.Config.Name, err)
		}
	}
	if err := streams.Err(); err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	return all, nil
}

// Oldest implements [ConsumerSource].
func (j JetStream) Oldest(ctx context.Context, c *jetstream.ConsumerInfo) (time.Time, error) {
	stream, err := j.JS.Stream(ctx, c.Stream)
	if err != nil {
		return time.Time{}, err
	}
	// A consumer with several filters is asked for with the first message of any subject, which is at least as old.
	subject := ">"
	if f := filters(&c.Config); len(f) == 1 {
		subject = f[0]
	}
	m, err := stream.GetMsg(ctx, c.AckFloor.Stream+1, jetstream.WithGetMsgSubject(subject))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return m.Time, nil
}

// Pause implements [ConsumerSource].
func (j JetStream) Pause(ctx context.Context, stream, consumer string, until time.Time) error {
	_, err := j.JS.PauseConsumer(ctx, stream, consumer, until)
	return err
}

// Resume implements [ConsumerSource].
func (j JetStream) Resume(ctx context.Context, stream, consumer string) error {
	_, err := j.JS.ResumeConsumer(ctx, stream, consumer)
	return err
}

// Unpin implements [ConsumerSource].
func (j JetStream) Unpin(ctx context.Context, stream, consumer, group string) error {
	return jetpull.Unpin(ctx, j.JS, stream, consumer, group)
}

// Reset implements [ConsumerSource].
func (j JetStream) Reset(ctx context.Context, stream, consumer string, sequence uint64) error {
	if sequence == 0 {
		_, err := j.JS.ResetConsumer(ctx, stream, consumer)
		return err
	}
	_, err := j.JS.ResetConsumerToSequence(ctx, stream, consumer, sequence)
	return err
}

// Delete implements [ConsumerSource].
func (j JetStream) Delete(ctx context.Context, stream, consumer string) error {
	return j.JS.DeleteConsumer(ctx, stream, consumer)
}
