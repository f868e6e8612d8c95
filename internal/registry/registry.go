// Package registry holds the records of a key-value bucket in memory and follows their changes.
//
// One goroutine applies all changes in the order of their revisions, including the changes of this process. A write returns when this process has
// applied it. A read has three results: the record, [stored.ErrNotFound], and [stored.ErrUnavailable] if the record is not known now.
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

// Registry holds the records of a bucket in memory, each in the [Table] of its key's prefix.
type Registry struct {
	cfg    Config
	bucket string
	tables []applier
	seen   *jsstream.Progress
}

// Config configures a Registry.
type Config struct {
	JS     jetstream.JetStream
	KV     jetstream.KeyValue
	Stream jetstream.Stream // of the bucket
	// Leader reads from the leader of the bucket's stream.
	Leader Leader
	// Shared specifies whether other processes also write to the bucket. If not, memory has all records.
	Shared bool
	Log    *slog.Logger
}

// Leader reads the last message of a subject from the leader of a stream. Its errors are those of [jsstream.Reader].
type Leader interface {
	AskLeader(ctx context.Context, stream, subject string) (*jetstream.RawStreamMsg, error)
}

// Entry is the content of the bucket for a key.
type Entry struct {
	Key      string
	Revision uint64
	Created  time.Time
	Value    []byte
}

// applier is the interface of a table without its type parameter.
type applier interface {
	prefix() string
	// apply applies the bucket's entry for a key. gone means that the entry was deleted.
	apply(e Entry, gone bool) error
	// restore writes the records that the bucket has lost.
	restore(ctx context.Context) error
}

// New returns a registry without tables.
func New(cfg Config) *Registry {
	return &Registry{cfg: cfg, bucket: cfg.KV.Bucket(), seen: jsstream.NewProgress()}
}

// Open reads the whole bucket and follows it until run ends. It returns when it has read everything that the bucket had at the time of the call. Its
// goroutine is in running. No table may be added after Open.
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

// restore writes the records that the bucket has lost: its servers set it back to an older state, and memory has the later one.
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

// deleted reports whether a message marks its key as deleted: a marker of a client, or of a server after the end of a time to live.
func deleted(h nats.Header) bool {
	return h.Get("KV-Operation") != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}

func (r *Registry) subject(key string) string { return "$KV." + r.bucket + "." + key }

// knownTimeout limits the wait until this process has applied a change of the bucket.
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

// lookTimeout limits a read from the bucket.
const lookTimeout = 2 * time.Second

// look returns when this process has applied the bucket's current entry for a key. If it returns an error, the current entry is not known.
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

// create stores the first value of a key, or the first after its deletion, and returns when this process has applied it.
func (r *Registry) create(ctx context.Context, key string, value []byte) (uint64, error) {
	revision, err := r.cfg.KV.Create(ctx, key, value)
	if err != nil {
		return 0, jsstream.WriteError(&nats.Msg{Subject: r.subject(key), Data: value}, err)
	}
	return revision, r.known(ctx, revision)
}

// replace stores a message in place of the value with revision was, and returns when this process has applied it. The bucket keeps the message for
// keep. 0 means forever.
func (r *Registry) replace(ctx context.Context, key string, m *nats.Msg, was uint64, keep time.Duration) (uint64, error) {
	m.Subject = r.subject(key)
	if domain := r.cfg.JS.Options().Domain; domain != "" {
		// A leaf node with JetStream forwards only subjects with the prefix of the domain's API.
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
