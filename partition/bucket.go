package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/systems"
)

// made is what a set was made of. It is in the metadata of the bucket.
type made struct {
	Stream  string
	Created time.Time // of the stream: one that was recreated has the same name
	Config
}

const madeKey = "partition"

func (s *Set) bucketName() string { return systems.PartitionBucket + s.cfg.Name }

// bucketConfig is that of a key-value bucket. But it has no direct reads: a replica may answer those, and be behind.
func (s *Set) bucketConfig(stream *jetstream.StreamInfo) jetstream.StreamConfig {
	text, _ := json.Marshal(made{s.stream, stream.Created, s.cfg}) // it has no value that JSON lacks
	return jetstream.StreamConfig{
		Name: "KV_" + s.bucketName(), Subjects: []string{"$KV." + s.bucketName() + ".>"}, Description: "members and owners of a set of partitions",
		Replicas: stream.Config.Replicas, MaxMsgsPerSubject: 1, AllowRollup: true, DenyDelete: true, Discard: jetstream.DiscardNew,
		AllowMsgTTL: true, Metadata: map[string]string{madeKey: string(text)},
	}
}

// openBucket creates or adopts the bucket, and refuses the set if it was made otherwise.
func (s *Set) openBucket(ctx context.Context, stream *jetstream.StreamInfo) error {
	made, err := s.made(ctx)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		if _, err = s.js.CreateStream(ctx, s.bucketConfig(stream)); err == nil { // without a record, members wait for the TTL
			err = s.write(ctx, recordKey, newRecord(s.cfg.Partitions), 0)
		}
		if err == nil || !errors.Is(err, errChanged) && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return err
		}
		made, err = s.made(ctx) // of another process, which was faster
	}
	if err != nil || made.Config == s.cfg && made.Created.Equal(stream.Created) {
		return err
	}
	if !made.Created.Equal(stream.Created) {
		slog.Warn("partition: the stream was deleted and created again since the set was opened; the set begins with the messages that it has now",
			"set", s.cfg.Name, "stream", s.stream, "created", stream.Created)
	}
	_, err = s.js.UpdateStream(ctx, s.bucketConfig(stream))
	return err
}

// made looks for the bucket, and returns what the set was made of. It refuses a set that is not as this one, unless that is not known yet.
func (s *Set) made(ctx context.Context) (m made, err error) {
	if err := s.check(ctx); err != nil {
		return m, err
	}
	bucket, err := s.js.Stream(ctx, "KV_"+s.bucketName())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = jetstream.ErrBucketNotFound
	}
	if err != nil {
		return m, fmt.Errorf("partition: bucket %q of set %q: %w", s.bucketName(), s.cfg.Name, err)
	}
	text := bucket.CachedInfo().Config.Metadata[madeKey]
	// Anybody who may create a bucket writes its metadata, which could name the consumers of another set.
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.complete() != nil || m.Name != s.cfg.Name {
		return made{}, fmt.Errorf("partition: bucket %q is not of a set: its metadata has %s=%.200q", s.bucketName(), madeKey, text)
	}
	if s.stream != "" && (m.Stream != s.stream || m.Partitions != s.cfg.Partitions || m.Subject != s.cfg.Subject) {
		return m, invalid("set %q was made on stream %q with %d partitions of %q, not on %q with %d of %q; open it as it is, or see Resize and Delete",
			s.cfg.Name, m.Stream, m.Partitions, m.Subject, s.stream, s.cfg.Partitions, s.cfg.Subject)
	}
	return m, nil
}

// subject is that of a key of the bucket, as nats.go has it.
func (s *Set) subject(key string) string {
	subject := "$KV." + s.bucketName() + "." + key
	if s.api != jetstream.DefaultAPIPrefix {
		return s.api + subject
	}
	return subject
}

func (s *Set) read(ctx context.Context, key string) (*jetstream.RawStreamMsg, error) {
	m, err := jsstream.Newest(ctx, s.js, "KV_"+s.bucketName(), "$KV."+s.bucketName()+"."+key)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return &jetstream.RawStreamMsg{}, nil
	}
	return m, err
}

// write has the server remove a heartbeat after twice the TTL.
func (s *Set) write(ctx context.Context, key string, value any, revision uint64) error {
	text, _ := json.Marshal(value) // it has no value that JSON lacks
	var opts []jetstream.PublishOpt
	if key != recordKey {
		opts = append(opts, jetstream.WithMsgTTL((2 * s.cfg.TTL).Round(time.Second)))
	}
	if revision != anyRevision {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(revision))
	}
	_, err := s.js.Publish(ctx, s.subject(key), text, opts...)
	if jsstream.Refused(err) {
		return errChanged
	}
	return err
}
