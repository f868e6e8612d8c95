package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrHasMembers says that a set cannot be deleted or resized, or get another TTL, while it has members.
	ErrHasMembers = errors.New("partition: the set has members")
	// ErrNotEmpty says that a set cannot be resized while it has messages that were not handled.
	ErrNotEmpty = errors.New("partition: the set is not empty")
)

// Partition is the state of a partition.
type Partition struct {
	Number int `json:"partition"`
	// Member is the name of the owner. It is empty if there is none, or if its last heartbeat is older than twice the TTL.
	Member string `json:"member,omitempty"`
	// Since is the time at which the owner took the partition, by the owner's clock. It is zero if there is no owner.
	Since time.Time `json:"since,omitzero"`
	// Pending counts the messages that were not delivered yet, and AckPending those that were delivered and not acknowledged.
	Pending    uint64 `json:"pending"`
	AckPending uint64 `json:"ack_pending"`
}

// Status returns the states of all partitions, ordered by number. It reads the bucket and lists the stream's consumers. It fails if a consumer was
// deleted.
func (s *Set) Status(ctx context.Context) ([]Partition, error) {
	v, err := s.look(ctx)
	if err = cmp.Or(err, v.incomplete); err != nil {
		return nil, err
	}
	return v.partitions, nil
}

// view is what the server knows of a set.
type view struct {
	stream     jetstream.Stream
	infos      infos
	members    []string // the names of those whose last heartbeat was neither removed nor overwritten
	partitions []Partition
	incomplete error // a consumer was deleted
}

func (s *Set) look(ctx context.Context) (v view, err error) {
	if _, err = s.made(ctx); err != nil {
		return v, err
	}
	r, err := load(ctx, s, s.cfg.Partitions)
	if err != nil {
		return v, err
	}
	for _, id := range slices.Sorted(maps.Keys(r.Members)) {
		last, err := s.read(ctx, memberKey+id)
		if err != nil {
			return v, fmt.Errorf("partition: read the bucket: %w", err)
		}
		if beat := string(last.Data); beat == "" || beat == overwritten {
			delete(r.Members, id)
		} else {
			v.members = append(v.members, nameOf(id))
		}
	}
	if v.stream, v.infos, err = s.infos(ctx); err != nil {
		return v, err
	}
	for n, o := range r.Owners {
		info, p := v.infos[n], Partition{Number: n, Member: nameOf(r.owner(n))}
		if p.Member != "" {
			p.Since = time.UnixMilli(o.Since)
		}
		if info != nil {
			p.Pending, p.AckPending = info.NumPending, uint64(max(0, info.NumAckPending))
		} else if v.incomplete == nil {
			v.incomplete = fmt.Errorf("partition: consumer %q on stream %q: %w; open the set again to create it",
				s.consumer(n), s.stream, jetstream.ErrConsumerNotFound)
		}
		v.partitions = append(v.partitions, p)
	}
	return v, nil
}

// idle returns the view of a set that has no members, and if empty, no messages that were not handled.
func (s *Set) idle(ctx context.Context, empty bool) (view, error) {
	v, err := s.look(ctx)
	if err == nil && len(v.members) > 0 {
		err = fmt.Errorf("%w: %q; stop them first", ErrHasMembers, v.members)
	}
	if err != nil || !empty {
		return v, err
	}
	for _, p := range v.partitions {
		if p.Pending+p.AckPending > 0 {
			return v, fmt.Errorf("%w: partition %d has %d messages pending and %d not acknowledged; stop the publishers, and let members handle them",
				ErrNotEmpty, p.Number, p.Pending, p.AckPending)
		}
	}
	return v, v.incomplete
}

// Delete deletes the consumers and the bucket of the set. It deletes no message. It returns [ErrHasMembers] while the set has members. A member that
// crashed counts for up to twice the TTL. If a Delete fails, it can be repeated.
func (s *Set) Delete(ctx context.Context) error {
	v, err := s.idle(ctx, false)
	if err != nil {
		return err
	}
	if err = s.remove(ctx, v.infos); err == nil {
		err = s.js.DeleteKeyValue(ctx, s.bucketName())
	}
	if err != nil {
		return fmt.Errorf("partition: delete set %q: %w", s.cfg.Name, err)
	}
	return nil
}

// Resize changes the number of partitions: the consumers, and the stream's SubjectTransform if [Transform] returned it; change any other one first.
// Keys then belong to other partitions. So before a Resize, stop the publishers, let members handle all messages, and stop the members. Resize
// returns [ErrHasMembers] while the set has members, and [ErrNotEmpty] if a message is pending or not acknowledged. Afterwards open the set again:
// the methods of this Set, which has the old number, return errors. The first members then wait for the TTL, because the bucket has no record of the
// new partitions. If a Resize fails, it can be repeated with a Set that [Load] returns.
func (s *Set) Resize(ctx context.Context, partitions int) error {
	to := &Set{js: s.js, stream: s.stream, cfg: s.cfg}
	to.cfg.Partitions = partitions
	v, err := s.idle(ctx, true)
	if err = cmp.Or(to.cfg.complete(), err); err != nil {
		return err
	}
	info, start := v.stream.CachedInfo(), uint64(0)
	config := info.Config
	if config.Retention == jetstream.LimitsPolicy { // streams with other policies keep no handled messages
		start = info.State.LastSeq + 1
	}
	change := config.SubjectTransform != nil && *config.SubjectTransform == Transform(s.cfg.Partitions, config.SubjectTransform.Source)
	if change {
		transform := Transform(partitions, config.SubjectTransform.Source)
		config.SubjectTransform = &transform
	}
	if err = to.cfg.checkSubjects(&config); err == nil {
		err = to.create(ctx, v.infos, start)
	}
	if err == nil && change {
		if _, err = s.js.UpdateStream(ctx, config); err == nil {
			v, err = s.idle(ctx, true) // a message may have been published before the transform changed
		}
	}
	if err == nil {
		_, err = s.js.UpdateStream(ctx, to.bucketConfig(info))
	}
	if err != nil {
		return fmt.Errorf("partition: resize set %q: %w", s.cfg.Name, err)
	}
	maps.DeleteFunc(v.infos, func(n int, _ *jetstream.ConsumerInfo) bool { return n < partitions })
	return s.remove(ctx, v.infos)
}
