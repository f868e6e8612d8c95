package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/internal/stored"
)

// keptFor is how long a bucket keeps a value that is not written again.
const keptFor = 30 * 24 * time.Hour

// bucket stores values in a key-value bucket. It implements [operation.Keep].
type bucket struct {
	jetstream.KeyValue
	source JetStream
	info   *jetstream.StreamInfo
}

// Bucket opens a key-value bucket. It creates a missing one.
func (j JetStream) Bucket(ctx context.Context, name string) (operation.Keep, error) {
	kv, err := j.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		cfg := jetstream.KeyValueConfig{
			Bucket: name, TTL: keptFor, Description: "the log, the operations and the charts of a jetpull console", Replicas: 3,
		}
		var refused *jetstream.APIError
		if kv, err = j.CreateKeyValue(ctx, cfg); errors.As(err, &refused) { // there are fewer servers than replicas
			cfg.Replicas = 1
			kv, err = j.CreateKeyValue(ctx, cfg)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the bucket %q: %w", name, inWords(err))
	}
	info, err := j.Stream(ctx, "KV_"+name)
	return &bucket{kv, j, info}, err
}

// Read implements [operation.Keep]. It uses direct get, so it creates no consumer.
func (b *bucket) Read(ctx context.Context, keys string) (map[string]*jetstream.RawStreamMsg, error) {
	const batch = 500
	prefix, found := "$KV."+b.Bucket()+".", map[string]*jetstream.RawStreamMsg{}
	for from := uint64(1); ; {
		messages, err := b.source.Messages(ctx, b.info, from, prefix+keys, batch)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", stored.ErrUnavailable, err)
		}
		for _, m := range messages {
			if from = m.Sequence + 1; m.Header.Get("KV-Operation") == "" {
				found[strings.TrimPrefix(m.Subject, prefix)] = m
			}
		}
		if len(messages) == 0 {
			return found, nil
		}
	}
}
