package partition

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/stored"
	"github.com/jetpull/jetpull/internal/systems"
)

// record names the members of a set and the last owner of each partition. It is one value in the bucket, changed only by compare-and-swap.
type record struct {
	Owners  []owner         `json:"owners"`  // by partition
	Members map[string]bool `json:"members"` // whether each member leaves, by the ID of the membership, which begins with the member's name

	revision uint64 // of the value in the bucket; 0: there is none
	bad      error  // why the value is not a record of the set, or nil
}

// owner is the last owner of a partition. Unless Released is set, it owns the partition while the record names it as a member.
type owner struct {
	ID       string `json:"m,omitempty"`
	Since    int64  `json:"t,omitempty"` // Unix time in milliseconds, by the owner's clock
	Released bool   `json:"r,omitempty"`
}

// nameOf returns the name of the member with an ID.
func nameOf(id string) string {
	name, _, _ := strings.Cut(id, ".")
	return name
}

const (
	recordKey   = "state"
	memberKey   = "member."   // followed by the ID; the value is a number that each heartbeat changes
	madeKey     = "partition" // in the metadata
	anyRevision = math.MaxUint64
)

// table is the bucket of a set. The leader of its stream answers all requests.
type table interface {
	// read returns the last value of a key. Its sequence is the revision; 0 means that there is no value.
	read(ctx context.Context, key string) (*jetstream.RawStreamMsg, error)
	// write fails with [stored.ErrConflict] if the last value has another revision, unless that is anyRevision.
	write(ctx context.Context, key string, value any, revision uint64) error
	// current fails with [jetpull.ErrInvalidOption] if the set was resized, or has another TTL, since it was opened.
	current(ctx context.Context) error
}

// ghost is the member that owns all partitions of a set without a record. It sends no heartbeat, so its partitions are free after the TTL. Until
// then, members that have not noticed that the record is gone may handle messages.
const ghost = "lost.record"

func load(ctx context.Context, t table, partitions int) (*record, error) {
	value, err := t.read(ctx, recordKey)
	if err != nil {
		return nil, fmt.Errorf("partition: read the bucket: %w", err)
	}
	r := &record{}
	if err := json.Unmarshal(value.Data, r); err != nil || len(r.Owners) != partitions || r.Members == nil {
		r = &record{Owners: slices.Repeat([]owner{{ID: ghost}}, partitions), Members: map[string]bool{ghost: false}}
		r.bad = fmt.Errorf("partition: the bucket has no record of %d partitions, but %.100q", partitions, value.Data)
	}
	r.revision = value.Sequence
	// Any client with write permission can change the record, and an ID becomes part of a subject.
	maps.DeleteFunc(r.Members, func(id string, _ bool) bool { return !validID(id) })
	return r, nil
}

// validID reports whether an ID has the form of a member's ID, or of ghost.
var validID = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}\.[a-zA-Z0-9]{1,22}$`).MatchString

func newRecord(partitions int) *record {
	return &record{Owners: make([]owner, partitions), Members: map[string]bool{}}
}

// owner returns the ID of a partition's owner, or "" if it has none.
func (r *record) owner(n int) string {
	o := r.Owners[n]
	if _, member := r.Members[o.ID]; !member || o.Released {
		return ""
	}
	return o.ID
}

// targets returns the member that should own each partition. The members' counts differ by at most one, and a partition moves only if its owner has
// too many. All members compute the same result from the same record.
func (r *record) targets() []string {
	target, owned := make([]string, len(r.Owners)), map[string]int{}
	for n := range target {
		owned[r.owner(n)]++
	}
	// The members that own the most partitions get the larger shares, so that the fewest partitions move.
	members := slices.SortedFunc(maps.Keys(r.Members), func(a, b string) int { return cmp.Or(cmp.Compare(owned[b], owned[a]), cmp.Compare(a, b)) })
	members = slices.DeleteFunc(members, func(id string) bool { return r.Members[id] })
	share := map[string]int{}
	for i, id := range members {
		share[id] = (len(target) + len(members) - 1 - i) / len(members)
	}
	for n := range target {
		if id := r.owner(n); share[id] > 0 {
			target[n] = id
			share[id]--
		}
	}
	for n := range target {
		if i := slices.IndexFunc(members, func(id string) bool { return share[id] > 0 }); i >= 0 && target[n] == "" {
			target[n] = members[i]
			share[members[i]]--
		}
	}
	return target
}

// made describes the stream and the configuration with which a set was created. It is in the metadata of the bucket.
type made struct {
	Stream  string
	Created time.Time // when the stream was created: a recreated stream has the same name
	Config
}

func (s *Set) bucketName() string { return systems.PartitionBucket + s.cfg.Name }

// bucketConfig returns the configuration of a key-value bucket, but without direct reads: a replica that lags behind may answer those.
func (s *Set) bucketConfig(stream *jetstream.StreamInfo) jetstream.StreamConfig {
	text, _ := json.Marshal(made{s.stream, stream.Created, s.cfg}) // all its values have a form in JSON
	return jetstream.StreamConfig{
		Name: "KV_" + s.bucketName(), Subjects: []string{"$KV." + s.bucketName() + ".>"}, Description: "members and owners of a set of partitions",
		Replicas: stream.Config.Replicas, MaxMsgsPerSubject: 1, AllowRollup: true, DenyDelete: true, Discard: jetstream.DiscardNew,
		AllowMsgTTL: true, Metadata: map[string]string{madeKey: string(text)},
	}
}

// build creates the consumers and the bucket, or adopts them. It changes nothing if the set has another configuration, or members and another TTL.
func (s *Set) build(ctx context.Context, stream *jetstream.StreamInfo, have infos) error {
	made, err := s.made(ctx)
	missing := errors.Is(err, jetstream.ErrBucketNotFound)
	if err == nil && made.TTL != s.cfg.TTL {
		_, err = s.idle(ctx, false)
	}
	if err == nil || missing {
		err = s.create(ctx, have, 0)
	}
	if err == nil && missing {
		// Without a record, members wait for the TTL: a bucket that was deleted can still have members.
		if _, err = s.js.CreateStream(ctx, s.bucketConfig(stream)); err == nil && len(have) == 0 {
			err = s.write(ctx, recordKey, newRecord(s.cfg.Partitions), 0)
		}
		if err == nil || !errors.Is(err, stored.ErrConflict) && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return err
		}
		made, err = s.made(ctx) // another process was faster
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

// made reads the description of the set from the bucket. It returns an error if that differs from s, unless s does not know its stream yet.
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
	// Any client that may create a bucket can write its metadata, and could name the consumers of another set there.
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.complete() != nil || m.Name != s.cfg.Name {
		return made{}, fmt.Errorf("partition: bucket %q is not of a set: its metadata has %s=%.200q", s.bucketName(), madeKey, text)
	}
	if s.stream != "" && (m.Stream != s.stream || m.Partitions != s.cfg.Partitions || m.Subject != s.cfg.Subject) {
		return m, invalid("set %q was made on stream %q with %d partitions of %q, not on %q with %d of %q; open it as it is, or see Resize and Delete",
			s.cfg.Name, m.Stream, m.Partitions, m.Subject, s.stream, s.cfg.Partitions, s.cfg.Subject)
	}
	return m, nil
}

func (s *Set) current(ctx context.Context) error {
	made, err := s.made(ctx)
	return cmp.Or(err, invalidIf(made.TTL != s.cfg.TTL, "set %q has a TTL of %v, not %v; open it again", s.cfg.Name, made.TTL, s.cfg.TTL))
}

// subject returns the subject of a key of the bucket, as nats.go computes it.
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

// write stores a value. The server removes a heartbeat after twice the TTL.
func (s *Set) write(ctx context.Context, key string, value any, revision uint64) error {
	text, _ := json.Marshal(value) // all its values have a form in JSON
	var opts []jetstream.PublishOpt
	if key != recordKey {
		opts = append(opts, jetstream.WithMsgTTL((2 * s.cfg.TTL).Round(time.Second)))
	}
	if revision != anyRevision {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(revision))
	}
	_, err := jsstream.Write(ctx, s.js, &nats.Msg{Subject: s.subject(key), Data: text}, opts...)
	return err
}
