// Package registry keeps the records of a key-value bucket in memory and follows their changes.
//
// One goroutine applies all changes in the order of their revisions, including changes of this process. A write returns when this
// process has applied it. A read has three answers: the record, [stored.ErrNotFound], and [stored.ErrUnavailable] if it is not known now.
package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/stored"
)

// Registry is a bucket whose records are in memory, each in the [Table] of its key's prefix.
type Registry struct {
	cfg    Config
	bucket string
	tables []applier
	seen   *jsstream.Progress
}

// Config says which bucket a registry keeps, and how.
type Config struct {
	JS     jetstream.JetStream
	KV     jetstream.KeyValue
	Stream jetstream.Stream // of the bucket
	// Leader reads from the leader of the bucket's stream.
	Leader Leader
	// Shared says that other processes write to the bucket too. Without it, memory has all that there is.
	Shared bool
	Log    *slog.Logger
}

// Leader reads the last message of a subject from the leader of a stream. Its errors are those of [jsstream.Reader].
type Leader interface {
	AskLeader(ctx context.Context, stream, subject string) (*jetstream.RawStreamMsg, error)
}

// Entry is what the bucket holds for a key.
type Entry struct {
	Key      string
	Revision uint64
	Created  time.Time
	Value    []byte
}

// applier is a table without its type.
type applier interface {
	prefix() string
	// apply takes what the bucket holds for a key; gone: nothing.
	apply(e Entry, gone bool) error
	// restore writes the records that the bucket has lost.
	restore(ctx context.Context) error
}

// New returns a registry that has no tables yet.
func New(cfg Config) *Registry {
	return &Registry{cfg: cfg, bucket: cfg.KV.Bucket(), seen: jsstream.NewProgress()}
}

// Open reads the whole bucket and follows it until run ends. It returns when all is in memory that the bucket had at the
// time of the call. The goroutine that reads is in running. No table is added after it.
func (r *Registry) Open(ctx, run context.Context, running *sync.WaitGroup, reader *jsstream.Reader) error {
	err := jsstream.Follow(ctx, run, running, jsstream.Feed{
		JS: r.cfg.JS, Stream: r.cfg.Stream, Reader: reader, Shared: r.cfg.Shared, See: r.see, Seen: r.seen, Log: r.cfg.Log,
		SetBack: r.restore,
	})
	if err != nil {
		return fmt.Errorf("read the registry: %w", err)
	}
	return nil
}

// restore writes what the bucket has lost: its servers have set it back to an older state, and memory has the later one.
func (r *Registry) restore(ctx context.Context) error {
	for _, t := range r.tables {
		if err := t.restore(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (r *Registry) see(msg *nats.Msg, meta *nats.MsgMetadata) {
	e := Entry{
		Key:      strings.TrimPrefix(msg.Subject, r.subject("")),
		Revision: meta.Sequence.Stream, Created: meta.Timestamp, Value: msg.Data,
	}
	for _, t := range r.tables {
		if !strings.HasPrefix(e.Key, t.prefix()) {
			continue
		}
		if err := t.apply(e, deleted(msg.Header)); err != nil {
			r.cfg.Log.Warn("an entry of the registry cannot be read and is ignored", "key", e.Key, "error", err)
		}
		return
	}
}

// deleted reports whether a message says that its key is gone: a client's marker, or that of a server whose time to live has
// ended.
func deleted(h nats.Header) bool {
	return h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}

func (r *Registry) subject(key string) string { return "$KV." + r.bucket + "." + key }

// knownTimeout bounds the wait for a change that the bucket has to be applied here.
const knownTimeout = 5 * time.Second

// known returns when this process has applied a revision.
func (r *Registry) known(ctx context.Context, revision uint64) error {
	ctx, cancel := context.WithTimeout(ctx, knownTimeout)
	defer cancel()
	if err := r.seen.Wait(ctx, revision); err != nil {
		return fmt.Errorf("%w: the registry is read up to revision %d of %d: %w", stored.ErrUnavailable, r.seen.Reached(), revision, err)
	}
	return nil
}

// lookTimeout bounds a look into the bucket.
const lookTimeout = 2 * time.Second

// look returns when this process has applied what the bucket holds for a key now. An error says that it is not known what
// that is.
func (r *Registry) look(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	raw, err := r.cfg.Leader.AskLeader(ctx, "KV_"+r.bucket, r.subject(key))
	switch {
	case errors.Is(err, stored.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return r.known(ctx, raw.Sequence)
}

// create stores the first value of a key, or the first one after its deletion, and returns when this process knows it.
func (r *Registry) create(ctx context.Context, key string, value []byte) (uint64, error) {
	revision, err := r.cfg.KV.Create(ctx, key, value)
	if err != nil {
		return 0, jsstream.WriteError(&nats.Msg{Subject: r.subject(key), Data: value}, err)
	}
	return revision, r.known(ctx, revision)
}

// replace stores a message in the place of the value of a revision, and returns when this process knows it. The bucket keeps the message
// for some time; 0: for ever.
func (r *Registry) replace(ctx context.Context, key string, m *nats.Msg, was uint64, keep time.Duration) (uint64, error) {
	m.Subject = r.subject(key)
	if domain := r.cfg.JS.Options().Domain; domain != "" {
		// A leaf node that has JetStream passes on only what begins with the prefix of the domain's API.
		m.Subject = "$JS." + domain + ".API." + m.Subject
	}
	opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(was)}
	if keep > 0 {
		opts = append(opts, jetstream.WithMsgTTL(keep))
	}
	revision, err := jsstream.Write(ctx, r.cfg.JS, m, opts...)
	if err != nil {
		return 0, err
	}
	return revision, r.known(ctx, revision)
}
