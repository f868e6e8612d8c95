package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// Set is a stream that is divided into partitions. Its methods may be called from any number of goroutines.
type Set struct {
	js     jetstream.JetStream
	stream string
	cfg    Config
	bucket bucket
	resets bool // the server can reset consumers
	counts *counts
}

// Stats are counters of a Set in this process since it was opened, except for Owned, which is a gauge.
type Stats struct {
	// Owned is the number of partitions that members in this process own now.
	Owned int
	// Assigned and Revoked count the partitions that members in this process got and lost.
	Assigned, Revoked uint64
	// Takeovers counts the partitions that members in this process got although the owner had not released them. Resets counts
	// the consumers that they reset, because messages were not acknowledged when the owner changed.
	Takeovers, Resets uint64
	// Lost counts how often members in this process lost their membership.
	Lost uint64
}

type counts struct {
	owned                                      atomic.Int64
	assigned, revoked, takeovers, resets, lost atomic.Uint64
}

// Stats returns the counters.
func (s *Set) Stats() Stats {
	c := s.counts
	return Stats{int(c.owned.Load()), c.assigned.Load(), c.revoked.Load(), c.takeovers.Load(), c.resets.Load(), c.lost.Load()}
}

// Config returns the set's configuration.
func (s *Set) Config() Config { return s.cfg }

// Stream returns the name of the stream.
func (s *Set) Stream() string { return s.stream }

// Open returns the Set of a stream. It creates the bucket and the consumers that are missing, and updates AckWait,
// MaxAckPending and TTL of existing ones. It returns an error that names the cause for a stream whose subjects do not have the
// partition at the place of {partition}, or have another number of partitions; for a set that was created with another
// configuration; for an interest stream that lacks a consumer of the set, because such a stream keeps no message of that
// partition; and for a server before 2.11.
func Open(ctx context.Context, js jetstream.JetStream, stream string, cfg Config) (*Set, error) {
	s := &Set{js: js, stream: stream, cfg: cfg, counts: new(counts)}
	if err := s.cfg.complete(); err != nil {
		return nil, err
	}
	var err error
	if s.resets, err = checkServer(js.Conn().ConnectedServerVersion()); err != nil {
		return nil, err
	}
	info, infos, err := s.infos(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.cfg.checkStream(&info.Config); err != nil {
		return nil, err
	}
	for n := range s.cfg.Partitions {
		if infos[n] == nil && info.Config.Retention == jetstream.InterestPolicy {
			return nil, invalid("stream %q has interest retention and no consumer %q, so it keeps no message of that partition; use limits or work-queue retention", stream, s.consumer(n))
		}
	}
	change, err := s.plan(infos, 0)
	if err != nil {
		return nil, err
	}
	if err := s.openBucket(ctx, info.Config.Replicas); err != nil {
		return nil, err
	}
	if err := s.apply(ctx, change); err != nil {
		return nil, err
	}
	return s, nil
}

// checkServer refuses a server that is too old, and reports whether it can reset consumers.
func checkServer(version string) (resets bool, err error) {
	var major, minor int
	switch _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); {
	case err != nil:
		return false, fmt.Errorf("partition: the version of the server is %q: connect first", version)
	case major < 2 || major == 2 && minor < 11:
		return false, fmt.Errorf("partition: server %s has no pinned priority groups: use 2.11 or later", version)
	}
	return major > 2 || minor >= 14, nil
}

// record is the configuration of a set. It is in the metadata of the bucket.
type record struct {
	Stream string
	Config
}

const (
	bucketPrefix = "partition-"
	recordKey    = "partition"
)

func (s *Set) bucketConfig(replicas int) jetstream.KeyValueConfig {
	return jetstream.KeyValueConfig{
		Bucket: bucketPrefix + s.cfg.Name, Description: "members and owners of a set of partitions", Replicas: replicas, LimitMarkerTTL: markerTTL,
		Metadata: map[string]string{recordKey: string(encode(record{s.stream, s.cfg}))},
	}
}

// openBucket creates or adopts the bucket, and refuses the set if it was made otherwise.
func (s *Set) openBucket(ctx context.Context, replicas int) error {
	config := s.bucketConfig(replicas)
	kv, err := s.js.KeyValue(ctx, config.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = s.js.CreateKeyValue(ctx, config)
		if errors.Is(err, jetstream.ErrBucketExists) { // another process was faster
			kv, err = s.js.KeyValue(ctx, config.Bucket)
		}
	}
	if err != nil {
		return fmt.Errorf("partition: bucket %q: %w", config.Bucket, err)
	}
	s.bucket = bucket{kv}
	made, _, err := s.made(ctx)
	if err == nil && made.Config != s.cfg {
		if err = s.compare(made); err == nil {
			_, err = s.js.UpdateKeyValue(ctx, config)
		}
	}
	return err
}

// made returns the set's configuration from the bucket, and the server's time.
func (s *Set) made(ctx context.Context) (made record, now time.Time, err error) {
	status, err := s.bucket.Status(ctx)
	if err != nil {
		return made, now, fmt.Errorf("partition: bucket %q: %w", s.bucket.Bucket(), err)
	}
	if err := json.Unmarshal([]byte(status.Metadata()[recordKey]), &made); err != nil {
		return made, now, fmt.Errorf("partition: bucket %q is not of a set: its metadata has %s=%q", s.bucket.Bucket(), recordKey, status.Metadata()[recordKey])
	}
	return made, status.(*jetstream.KeyValueBucketStatus).StreamInfo().TimeStamp, nil
}

func (s *Set) compare(made record) error {
	if made.Stream == s.stream && made.Partitions == s.cfg.Partitions && made.Subject == s.cfg.Subject {
		return nil
	}
	return invalid("set %q was made on stream %q with %d partitions of %q, not on %q with %d of %q; open it as it is, or see Resize and Delete",
		s.cfg.Name, made.Stream, made.Partitions, made.Subject, s.stream, s.cfg.Partitions, s.cfg.Subject)
}

// Load returns a Set by its name, after any process has opened it. It creates and changes nothing.
func Load(ctx context.Context, js jetstream.JetStream, name string) (*Set, error) {
	if !validName(name) {
		return nil, invalid("Name %q: use 1 to 64 letters, digits, '-' and '_'", name)
	}
	resets, err := checkServer(js.Conn().ConnectedServerVersion())
	if err != nil {
		return nil, err
	}
	kv, err := js.KeyValue(ctx, bucketPrefix+name)
	if err != nil {
		return nil, fmt.Errorf("partition: set %q does not exist, or its bucket %q cannot be read: %w", name, bucketPrefix+name, err)
	}
	s := &Set{js: js, bucket: bucket{kv}, resets: resets, counts: new(counts)}
	made, _, err := s.made(ctx)
	s.stream, s.cfg = made.Stream, made.Config
	return s, err
}

// Consume makes this process a member of the set until ctx ends. It runs h for the messages of the partitions that the member
// owns. When members join or leave, it takes or releases partitions. Each call is a member of its own, also within a process.
//
// When ctx ends, Consume hands back the messages that no handler has started, waits for the running handlers, and releases its
// partitions. It cancels the context of a handler that runs for longer than DrainTimeout. It returns when the last handler has
// returned; until then no other member gets the handler's partition. It returns [ErrMemberInUse] if the name is taken, and an
// error if the bucket or a consumer was deleted, the set was resized, or an option is not valid. A lost membership does not end
// Consume: the member joins again.
func (s *Set) Consume(ctx context.Context, h jetpull.Handler, opts ...Option) error {
	if h == nil {
		return invalid("handler is nil; give the function that handles a message")
	}
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	if made, _, err := s.made(ctx); err == nil { // or else it is not known now
		if err := s.compare(made); err != nil {
			return err
		}
	}
	m := &member{
		table: s.bucket, options: o, handler: h, ttl: s.cfg.TTL, counts: s.counts,
		view: newView(s.cfg.Partitions), ended: make(chan *run, s.cfg.Partitions),
	}
	m.consume = func(ctx context.Context, n int, h jetpull.Handler) (uint64, error) {
		return s.consume(ctx, n, h, o.consume)
	}
	return m.run(ctx)
}
