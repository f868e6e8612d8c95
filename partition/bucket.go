package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// table is the bucket of a set. It has a key for each member, and one for each partition that has had an owner. Keys do not expire.
type table interface {
	Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error)
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	WatchAll(ctx context.Context, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error)
	// remove deletes a key that still has the revision.
	remove(ctx context.Context, key string, revision uint64) error
}

const (
	memberPrefix = "member."
	ownerPrefix  = "partition."
)

// memberRecord is the value of a member's key. Each join has another incarnation.
type memberRecord struct {
	Incarnation string        `json:"incarnation"`
	TTL         time.Duration `json:"ttl_ns"`
}

// ownerRecord is the value of a partition's key. A partition that was released has no member.
type ownerRecord struct {
	Member      string `json:"member,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
	ReleasedBy  string `json:"released_by,omitempty"`
	// Done lists the messages above the acknowledgement floor that were handled. A reset forgets their acknowledgements.
	Done []uint64 `json:"done,omitempty"`

	rev   uint64
	since time.Time
}

func encode(record any) []byte {
	data, _ := json.Marshal(record) // records have no value that JSON lacks
	return data
}

// view is what a process knows of the bucket.
type view struct {
	members map[string]*memberState
	owners  []ownerRecord
}

type memberState struct {
	memberRecord
	rev          uint64
	seen, stored time.Time // when its last heartbeat arrived here, and at the server, each by its own clock
	renewed      bool      // a heartbeat has arrived since this process watches
}

func newView(partitions int) *view {
	return &view{members: make(map[string]*memberState), owners: make([]ownerRecord, partitions)}
}

func (v *view) apply(e jetstream.KeyValueEntry) (err error) {
	if name, ok := strings.CutPrefix(e.Key(), memberPrefix); ok {
		before := v.members[name]
		delete(v.members, name)
		if e.Operation() == jetstream.KeyValuePut {
			m := &memberState{rev: e.Revision(), seen: time.Now(), stored: e.Created()}
			err = json.Unmarshal(e.Value(), &m.memberRecord)
			m.renewed = before != nil && before.Incarnation == m.Incarnation
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

// owner returns the name of the member that owns a partition, or "" if none does, or one that is gone.
func (v *view) owner(n int) string {
	o := v.owners[n]
	if m := v.members[o.Member]; m != nil && m.Incarnation == o.Incarnation {
		return o.Member
	}
	return ""
}

var errWatchEnded = errors.New("partition: the bucket cannot be followed: it was deleted, or the connection is closed")

// read returns what the bucket has now. It makes no watcher: that would be a consumer of the bucket's stream, for each look.
func (s *Set) read(ctx context.Context) (*view, error) {
	name := s.bucket.Bucket()
	stream, err := s.js.Stream(ctx, "KV_"+name)
	if err != nil {
		return nil, fmt.Errorf("partition: read the bucket: %w", err)
	}
	prefix := "$KV." + name + "."
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(prefix+">"))
	if err != nil {
		return nil, fmt.Errorf("partition: read the bucket: %w", err)
	}
	v := newView(s.cfg.Partitions)
	for subject := range info.State.Subjects {
		e, err := s.bucket.Get(ctx, strings.TrimPrefix(subject, prefix))
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			// The leader lists the key. A replica that answers can be behind and not have it yet, so only a marker shows that it was removed.
			if _, err = stream.GetLastMsgForSubject(ctx, subject); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, fmt.Errorf("partition: read the bucket: %w", err)
		}
		if err := v.apply(e); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// bucket is the table on a server.
type bucket struct{ jetstream.KeyValue }

// remove leaves a marker for watchers, for an hour: a member that is cut off for so long has lost its membership, and reads the bucket again.
func (b bucket) remove(ctx context.Context, key string, revision uint64) error {
	return b.Purge(ctx, key, jetstream.LastRevision(revision), jetstream.PurgeTTL(markerTTL))
}

const markerTTL = time.Hour

// isGone reports whether a bucket does not exist, or the connection is closed.
func isGone(err error) bool {
	return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, nats.ErrStreamNotFound) || errors.Is(err, nats.ErrConnectionClosed)
}
