package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrHasMembers says that a set cannot be deleted or resized while it has members.
	ErrHasMembers = errors.New("partition: the set has members")
	// ErrNotEmpty says that a set cannot be resized while it has messages that were not handled.
	ErrNotEmpty = errors.New("partition: the set is not empty")
)

// Partition is the state of a partition.
type Partition struct {
	Number int `json:"partition"`
	// Member is the name of the owner. It is empty if there is none, or if its last heartbeat is older than the TTL.
	Member string `json:"member,omitempty"`
	// Since is the time at which the owner took the partition, by the server's clock. It is zero if there is no owner.
	Since time.Time `json:"since,omitzero"`
	// Pending counts the messages that were not delivered yet, and AckPending those that were delivered and not acknowledged.
	Pending    uint64 `json:"pending"`
	AckPending uint64 `json:"ack_pending"`
}

// Status returns the states of all partitions, ordered by number. It reads the bucket and lists the stream's consumers. It
// fails if a consumer was deleted.
func (s *Set) Status(ctx context.Context) ([]Partition, error) {
	v, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	_, infos, err := s.infos(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Partition, s.cfg.Partitions)
	for n := range all {
		info := infos[n]
		if info == nil {
			return nil, fmt.Errorf("partition: consumer %q on stream %q: %w; open the set again to create it", s.consumer(n), s.stream, jetstream.ErrConsumerNotFound)
		}
		all[n] = Partition{Number: n, Member: v.owner(n), Pending: info.NumPending, AckPending: uint64(max(0, info.NumAckPending))}
		if all[n].Member != "" {
			all[n].Since = v.owners[n].since
		}
	}
	return all, nil
}

// look reads the bucket. Members that are silent for their TTL, by the server's clock, are left out.
func (s *Set) look(ctx context.Context) (*view, error) {
	made, now, err := s.made(ctx)
	if err == nil {
		err = s.compare(made)
	}
	if err != nil {
		return nil, err
	}
	v, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(v.members, func(_ string, m *memberState) bool { return now.Sub(m.stored) > m.TTL })
	return v, nil
}

func (s *Set) refuseMembers(ctx context.Context) error {
	v, err := s.look(ctx)
	if err == nil && len(v.members) > 0 {
		err = fmt.Errorf("%w: %q; stop them first", ErrHasMembers, slices.Sorted(maps.Keys(v.members)))
	}
	return err
}

// Delete deletes the consumers and the bucket of the set. It deletes no message. It returns [ErrHasMembers] while the set has
// members. A member that crashed counts until its TTL is over. If a Delete fails, it can be repeated.
func (s *Set) Delete(ctx context.Context) error {
	if err := s.refuseMembers(ctx); err != nil {
		return err
	}
	_, infos, err := s.infos(ctx)
	if err != nil {
		return err
	}
	if err := s.remove(ctx, infos, 0); err != nil {
		return err
	}
	if err := s.js.DeleteKeyValue(ctx, s.bucket.Bucket()); err != nil {
		return fmt.Errorf("partition: delete bucket %q: %w", s.bucket.Bucket(), err)
	}
	return nil
}

// Resize changes the number of partitions: the consumers, and the stream's SubjectTransform if there is one. Keys then belong
// to other partitions. So stop the publishers, let members handle all messages, and stop the members first. Resize returns
// [ErrHasMembers] while the set has members, and [ErrNotEmpty] if a message is pending or not acknowledged. Afterwards open the
// set again: the methods of this Set, which has the old number, return errors. If a Resize fails, it can be repeated with a Set
// that [Load] returns.
func (s *Set) Resize(ctx context.Context, partitions int) error {
	to := *s
	to.cfg.Partitions = partitions
	if err := to.cfg.complete(); err != nil {
		return err
	}
	info, infos, err := s.infos(ctx)
	if err != nil {
		return err
	}
	if err := s.refuseWork(ctx); err != nil {
		return err
	}
	config, start := info.Config, uint64(0)
	if config.Retention == jetstream.LimitsPolicy { // others keep nothing that was handled
		start = info.State.LastSeq + 1
	}
	change, err := to.plan(infos, start)
	if err != nil {
		return err
	}
	if err := to.apply(ctx, change); err != nil {
		return err
	}
	if s.cfg.resize(&config, partitions) {
		if _, err := s.js.UpdateStream(ctx, config); err != nil {
			return fmt.Errorf("partition: update the SubjectTransform of stream %q: %w", s.stream, err)
		}
		if err := s.refuseWork(ctx); err != nil { // that was published before the transform changed
			return err
		}
	}
	if _, err := s.js.UpdateKeyValue(ctx, to.bucketConfig(config.Replicas)); err != nil {
		return fmt.Errorf("partition: update bucket %q: %w", s.bucket.Bucket(), err)
	}
	return s.remove(ctx, infos, partitions)
}

func (s *Set) refuseWork(ctx context.Context) error {
	if err := s.refuseMembers(ctx); err != nil {
		return err
	}
	all, err := s.Status(ctx)
	for _, p := range all {
		if p.Pending+p.AckPending > 0 {
			return fmt.Errorf("%w: partition %d has %d messages pending and %d not acknowledged; stop the publishers, and let members handle them", ErrNotEmpty, p.Number, p.Pending, p.AckPending)
		}
	}
	return err
}
