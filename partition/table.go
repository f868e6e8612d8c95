package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// table is the bucket of a set: a key for each member, which expires, and one for each partition that has had an owner.
type table interface {
	// create is refused with jetstream.ErrKeyExists where the key is there.
	create(ctx context.Context, key string, value any, ttl time.Duration) (uint64, error)
	// put replaces revision rev of a key; 0 creates it. A key with another revision is an error that conflicts reports. A ttl of 0 is
	// for ever.
	put(ctx context.Context, key string, value any, rev uint64, ttl time.Duration) (uint64, error)
	get(ctx context.Context, key string) (jetstream.KeyValueEntry, error)
	remove(ctx context.Context, key string, rev uint64) error
	watch(ctx context.Context) (jetstream.KeyWatcher, error)
}

const (
	configKey    = "set"
	memberPrefix = "member."
	ownerPrefix  = "partition."
)

// memberRecord is the value of a member's key. The incarnation is another for each time that the member joins.
type memberRecord struct {
	Incarnation string        `json:"incarnation"`
	TTL         time.Duration `json:"ttl_ns"`
}

// ownerRecord is the value of a partition's key. A partition that was released has no member.
type ownerRecord struct {
	Member      string `json:"member,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
	ReleasedBy  string `json:"released_by,omitempty"`
	// Done has the messages above the acknowledgement floor that were handled. A reset forgets their acknowledgements.
	Done []uint64 `json:"done,omitempty"`

	rev   uint64
	since time.Time
}

// view is what a member knows of the bucket.
type view struct {
	members map[string]*memberState
	owners  []ownerRecord
}

type memberState struct {
	memberRecord
	seen    time.Time // when its last heartbeat arrived here
	expired bool      // the server has reported that its key expired
}

func newView(partitions int) *view {
	return &view{members: make(map[string]*memberState), owners: make([]ownerRecord, partitions)}
}

// apply takes in an entry of the bucket.
func (v *view) apply(e jetstream.KeyValueEntry) (err error) {
	if name, ok := strings.CutPrefix(e.Key(), memberPrefix); ok {
		switch m := v.members[name]; {
		case e.Operation() == jetstream.KeyValueDelete: // it has left and released its partitions
			delete(v.members, name)
		case e.Operation() == jetstream.KeyValuePurge && m != nil:
			m.expired = true
		case e.Operation() == jetstream.KeyValuePut:
			m = &memberState{seen: time.Now()}
			err = json.Unmarshal(e.Value(), &m.memberRecord)
			v.members[name] = m
		}
	} else if number, ok := strings.CutPrefix(e.Key(), ownerPrefix); ok {
		if n, bad := strconv.Atoi(number); bad == nil && n >= 0 && n < len(v.owners) {
			v.owners[n] = ownerRecord{rev: e.Revision(), since: e.Created()}
			err = json.Unmarshal(e.Value(), &v.owners[n])
		}
	}
	if err != nil {
		return fmt.Errorf("partition: bucket %q: key %q has the value %q: %w", e.Bucket(), e.Key(), e.Value(), err)
	}
	return nil
}

// names returns the members in order. A member whose key has expired stays until its TTL has passed since its last heartbeat arrived here,
// whichever clock expired the key; next is when the first of these can go.
func (v *view) names(now time.Time) (names []string, next time.Time) {
	for name, m := range v.members {
		until := m.seen.Add(m.TTL)
		if m.expired && !now.Before(until) {
			delete(v.members, name)
			continue
		}
		if m.expired && (next.IsZero() || until.Before(next)) {
			next = until
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, next
}

// owner returns the name of the member that owns a partition, or "" if none does, or one that is gone.
func (v *view) owner(n int) string {
	o := v.owners[n]
	if m := v.members[o.Member]; m != nil && m.Incarnation == o.Incarnation {
		return o.Member
	}
	return ""
}

// snapshot returns what the bucket has now.
func snapshot(ctx context.Context, t table, partitions int) (*view, error) {
	w, err := t.watch(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Stop() }()
	v := newView(partitions)
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("partition: read the bucket: %w", ctx.Err())
		case e, ok := <-w.Updates():
			if !ok {
				return nil, errWatchEnded
			}
			if e == nil {
				return v, nil
			}
			if err := v.apply(e); err != nil {
				return nil, err
			}
		}
	}
}

var errWatchEnded = errors.New("partition: the bucket cannot be followed: it was deleted, or the connection is closed")

// bucket is the table on a server.
type bucket struct {
	js     jetstream.JetStream
	kv     jetstream.KeyValue
	prefix string // of the subjects of keys
}

func newBucket(js jetstream.JetStream, kv jetstream.KeyValue) *bucket {
	b := &bucket{js: js, kv: kv, prefix: "$KV." + kv.Bucket() + "."}
	switch o := js.Options(); {
	case o.Domain != "":
		b.prefix = "$JS." + o.Domain + ".API." + b.prefix
	case o.APIPrefix != "" && o.APIPrefix != jetstream.DefaultAPIPrefix:
		b.prefix = strings.TrimSuffix(o.APIPrefix, ".") + "." + b.prefix
	}
	return b
}

func (b *bucket) create(ctx context.Context, key string, value any, ttl time.Duration) (uint64, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return 0, err
	}
	return b.kv.Create(ctx, key, data, jetstream.KeyTTL(ttl))
}

// put publishes to the key's subject, because an Update of nats.go has no TTL, and the key would never expire.
func (b *bucket) put(ctx context.Context, key string, value any, rev uint64, ttl time.Duration) (uint64, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return 0, err
	}
	opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(rev)}
	if ttl > 0 {
		opts = append(opts, jetstream.WithMsgTTL(ttl))
	}
	ack, err := b.js.PublishMsg(ctx, &nats.Msg{Subject: b.prefix + key, Header: nats.Header{}, Data: data}, opts...)
	if err != nil {
		return 0, fmt.Errorf("partition: bucket %q: write key %q: %w", b.kv.Bucket(), key, err)
	}
	return ack.Sequence, nil
}

// conflicts reports whether the key had another revision.
func conflicts(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

func (b *bucket) get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	return b.kv.Get(ctx, key)
}

func (b *bucket) remove(ctx context.Context, key string, rev uint64) error {
	return b.kv.Delete(ctx, key, jetstream.LastRevision(rev))
}

func (b *bucket) watch(ctx context.Context) (jetstream.KeyWatcher, error) {
	w, err := b.kv.WatchAll(ctx)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, nats.ErrStreamNotFound), errors.Is(err, nats.ErrConnectionClosed):
		return nil, fmt.Errorf("partition: watch bucket %q: %w", b.kv.Bucket(), err)
	case err != nil:
		return nil, fmt.Errorf("%w: watch bucket %q: %w", errCannotJoin, b.kv.Bucket(), err)
	}
	return w, nil
}
