package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/stored"
)

// keptFor is how long a bucket keeps what is not written again.
const keptFor = 30 * 24 * time.Hour

// bucket keeps values in a key-value bucket. It implements [operation.Keep].
type bucket struct {
	JetStream
	kv   jetstream.KeyValue
	info *jetstream.StreamInfo
}

// Bucket opens a key-value bucket, and creates it if there is none.
func (j JetStream) Bucket(ctx context.Context, name string) (operation.Keep, error) {
	kv, err := j.JS.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		cfg := jetstream.KeyValueConfig{
			Bucket: name, TTL: keptFor, Description: "the log, the operations and the charts of a jetpull console", Replicas: 3,
		}
		var refused *jetstream.APIError
		if kv, err = j.JS.CreateKeyValue(ctx, cfg); errors.As(err, &refused) { // there are fewer servers
			cfg.Replicas = 1
			kv, err = j.JS.CreateKeyValue(ctx, cfg)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the bucket %q: %w", name, inWords(err))
	}
	info, err := j.Stream(ctx, "KV_"+name)
	return &bucket{j, kv, info}, err
}

// Read implements [operation.Keep]. It reads by direct get, so it creates no consumer.
func (b *bucket) Read(ctx context.Context, keys string) (map[string]operation.Kept, error) {
	const batch = 500
	prefix, found := "$KV."+b.kv.Bucket()+".", map[string]operation.Kept{}
	for from := uint64(1); ; {
		messages, err := b.Messages(ctx, b.info, from, prefix+keys, batch)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", stored.ErrUnavailable, err)
		}
		for _, m := range messages {
			if from = m.Sequence + 1; m.Header.Get("KV-Operation") == "" {
				found[strings.TrimPrefix(m.Subject, prefix)] = operation.Kept{Data: m.Data, Revision: m.Sequence}
			}
		}
		if len(messages) == 0 {
			return found, nil
		}
	}
}

// Put implements [operation.Keep].
func (b *bucket) Put(ctx context.Context, key string, data []byte) error {
	_, err := b.kv.Put(ctx, key, data)
	return err
}

// Swap implements [operation.Keep].
func (b *bucket) Swap(ctx context.Context, key string, data []byte, revision uint64) (uint64, error) {
	next, err := b.kv.Update(ctx, key, data, revision)
	if err != nil {
		err = jsstream.WriteError(&nats.Msg{Subject: key, Data: data}, err)
	}
	return next, err
}
