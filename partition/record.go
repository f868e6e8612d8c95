package partition

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// record is who the members of a set are, and who took what last. It is one value in the bucket, which only compare-and-swap changes.
type record struct {
	Owners  []owner         `json:"owners"`  // by partition
	Members map[string]bool `json:"members"` // by the ID of a membership, which begins with the member's name: whether it leaves

	revision uint64 // of the value in the bucket; 0: there is none
	bad      error  // the value is no record of the set
}

// owner is the last owner of a partition. Without Released it has the partition as long as it is a member. After that it is gone.
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
	recordKey = "state"
	memberKey = "member." // and the ID: a number that each heartbeat changes
)

// table is the bucket of a set. Its leader answers.
type table interface {
	// read returns the last value of a key. Its revision is its sequence; 0: there is none.
	read(ctx context.Context, key string) (*jetstream.RawStreamMsg, error)
	// write fails with errChanged if the last value has another revision, unless that is anyRevision.
	write(ctx context.Context, key string, value any, revision uint64) error
}

const anyRevision = math.MaxUint64

var errChanged = errors.New("partition: the key was changed meanwhile")

// ghost is the member of a set that has no record. It sends no heartbeat, so its partitions are free after the TTL: until then, members that have not
// noticed that the record is gone may handle messages.
const ghost = "lost.record"

func load(ctx context.Context, t table, partitions int) (*record, error) {
	value, err := t.read(ctx, recordKey)
	if err != nil {
		return nil, fmt.Errorf("partition: read the bucket: %w", err)
	}
	r := &record{}
	if err := json.Unmarshal(value.Data, r); err != nil || len(r.Owners) != partitions || r.Members == nil {
		r = newRecord(partitions)
		r.bad = fmt.Errorf("partition: the bucket has no record of %d partitions, but %.100q", partitions, value.Data)
		r.Members[ghost] = false
		for n := range r.Owners {
			r.Owners[n].ID = ghost
		}
	}
	r.revision = value.Sequence
	// Anybody who may write to the bucket writes it, and an ID is part of a subject.
	maps.DeleteFunc(r.Members, func(id string, _ bool) bool { return !validID(id) })
	return r, nil
}

// validID reports whether an ID is of the form of those of members, or of ghost.
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

// targets returns the member that is to own each partition. Counts differ by at most one, and a partition moves only where its owner has too many.
// All members compute the same from the same record.
func (r *record) targets() []string {
	target, owned := make([]string, len(r.Owners)), map[string]int{}
	for n := range target {
		owned[r.owner(n)]++
	}
	// Members that own the most get the larger shares, so that the fewest partitions move.
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
		members = slices.DeleteFunc(members, func(id string) bool { return share[id] == 0 })
		if target[n] == "" && len(members) > 0 {
			target[n] = members[0]
			share[members[0]]--
		}
	}
	return target
}
