package partition

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// record is who the members of a set are, and who owns what. It is one value in the bucket, which only compare-and-swap changes.
type record struct {
	Owners  []owner         `json:"owners"`  // by partition
	Members map[string]seat `json:"members"` // by name

	revision uint64 // of the value in the bucket; 0: there is none
	bad      error  // the value is no record of the set
}

// seat is a membership. Each has an ID of its own.
type seat struct {
	ID     string `json:"id"`
	Leaves bool   `json:"leaves,omitempty"` // it takes nothing any more
}

// owner is the owner of a partition. If it has none, From is the one that had it last.
type owner struct {
	Member string `json:"m,omitempty"`
	Since  int64  `json:"t,omitempty"` // Unix time in milliseconds, by the owner's clock
	From   string `json:"f,omitempty"`
	Gone   bool   `json:"g,omitempty"` // others have removed From from the record
}

const (
	recordKey = "state"
	memberKey = "member." // and the ID: a number that each heartbeat changes
)

// table is the bucket of a set. Its leader answers.
type table interface {
	// read returns the last value of a key. Its revision is its sequence; 0: there is none.
	read(ctx context.Context, key string) (*jetstream.RawStreamMsg, error)
	// write fails with errChanged if the last value has another revision, unless that is anyRevision.
	write(ctx context.Context, key string, value any, revision uint64) error
	// hear calls f with what any process writes, until stop. It is a hint: a write may be missed, and it may be refused.
	hear(f func(key string, value []byte)) (stop func(), err error)
}

const anyRevision = math.MaxUint64

var errChanged = errors.New("partition: the key was changed meanwhile")

// ghost is the member of a set that has no record. It sends no heartbeat, so its partitions are free after the TTL: until then, members that have not
// noticed that the record is gone may handle messages.
const ghost = "lost-record"

func load(ctx context.Context, t table, partitions int) (*record, error) {
	value, err := t.read(ctx, recordKey)
	if err != nil {
		return nil, fmt.Errorf("partition: read the bucket: %w", err)
	}
	r := &record{}
	if err := json.Unmarshal(value.Data, r); err != nil || len(r.Owners) != partitions || r.Members == nil {
		r = newRecord(partitions)
		r.bad = fmt.Errorf("partition: the bucket has no record of %d partitions, but %.100q", partitions, value.Data)
		r.Members[ghost] = seat{ID: ghost}
		for n := range r.Owners {
			r.Owners[n].Member = ghost
		}
	}
	r.revision = value.Sequence
	// Anybody who may write to the bucket writes it. "" is the owner of what has none, and an ID is part of a subject.
	maps.DeleteFunc(r.Members, func(name string, s seat) bool { return name == "" || !validName(s.ID) })
	for _, o := range r.Owners {
		if _, ok := r.Members[o.Member]; o.Member != "" && !ok {
			r.expel(o.Member)
		}
	}
	return r, nil
}

func newRecord(partitions int) *record {
	return &record{Owners: make([]owner, partitions), Members: map[string]seat{}}
}

// expel removes a member, and leaves its partitions without an owner.
func (r *record) expel(name string) {
	delete(r.Members, name)
	for n, o := range r.Owners {
		if o.Member == name {
			r.Owners[n] = owner{From: name, Gone: true}
		}
	}
}

// targets returns the member that is to own each partition. Counts differ by at most one, and a partition moves only where its owner has too many.
// All members compute the same from the same record.
func (r *record) targets() []string {
	target, owned := make([]string, len(r.Owners)), map[string]int{}
	for _, o := range r.Owners {
		owned[o.Member]++
	}
	// Members that own the most get the larger shares, so that the fewest partitions move.
	members := slices.SortedFunc(maps.Keys(r.Members), func(a, b string) int { return cmp.Or(cmp.Compare(owned[b], owned[a]), cmp.Compare(a, b)) })
	members = slices.DeleteFunc(members, func(m string) bool { return r.Members[m].Leaves })
	share := map[string]int{}
	for i, m := range members {
		share[m] = (len(target) + len(members) - 1 - i) / len(members)
	}
	for n, o := range r.Owners {
		if share[o.Member] > 0 {
			target[n] = o.Member
			share[o.Member]--
		}
	}
	var takers []string // for each partition that is left
	for _, m := range members {
		takers = append(takers, slices.Repeat([]string{m}, share[m])...)
	}
	for n := range target {
		if target[n] == "" && len(takers) > 0 {
			target[n], takers = takers[0], takers[1:]
		}
	}
	return target
}
