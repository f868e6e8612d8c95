package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// Set is the partitions of a stream. Its methods may be called from any number of goroutines.
type Set struct {
	js     jetstream.JetStream
	stream string
	cfg    Config
	bucket *bucket
	resets bool // the server can reset consumers
	counts *counts
}

// Stats are counters of a Set in this process since it was opened, and Owned, which is a gauge.
type Stats struct {
	// Owned is how many partitions the members in this process have now.
	Owned int
	// Assigned and Revoked count partitions that came to members in this process and left them.
	Assigned, Revoked uint64
	// Takeovers counts those whose owner had not released them, and Resets the consumers that had messages pending when their
	// owner changed.
	Takeovers, Resets uint64
	// Lost counts how often a member in this process lost its membership.
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

// Open returns the Set of a stream. It creates the bucket and the consumers that are missing, and updates AckWait, MaxAckPending and
// TTL of those that are there. It refuses, with an error that names the cause, a stream whose subjects have no partition at that place, or
// another number of them; a set that was made otherwise; an interest stream that lacks a consumer of the set, because such a
// stream keeps no message of that partition; and a server before 2.11.
func Open(ctx context.Context, js jetstream.JetStream, stream string, cfg Config) (*Set, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	s := &Set{js: js, stream: stream, cfg: cfg, counts: new(counts)}
	var err error
	if s.resets, err = checkServer(js.Conn().ConnectedServerVersion()); err != nil {
		return nil, err
	}
	st, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("partition: stream %q: %w", stream, err)
	}
	if err := cfg.checkStream(&st.CachedInfo().Config); err != nil {
		return nil, err
	}
	missing, err := s.adopt(ctx, st)
	if err != nil {
		return nil, err
	}
	if err := s.openBucket(ctx, st.CachedInfo().Config.Replicas); err != nil {
		return nil, err
	}
	for _, c := range missing {
		if _, err := s.js.CreateOrUpdateConsumer(ctx, stream, c); err != nil {
			return nil, fmt.Errorf("partition: create consumer %q on stream %q: %w", c.Name, stream, err)
		}
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
		return false, fmt.Errorf("partition: server %s has no pinned priority groups and no TTL of keys: use 2.11 or later", version)
	}
	return major > 2 || minor >= 14, nil
}

// adopt checks the consumers that are there, and returns those to create or update.
func (s *Set) adopt(ctx context.Context, st jetstream.Stream) (change []jetstream.ConsumerConfig, err error) {
	infos, err := s.infos(ctx, st)
	for n, info := range infos {
		want := jetstream.ConsumerConfig{
			Name: s.consumer(n), Durable: s.consumer(n), FilterSubject: s.cfg.filter(strconv.Itoa(n)),
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: s.cfg.AckWait, MaxAckPending: s.cfg.MaxAckPending, MaxDeliver: -1,
			PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{group}, PinnedTTL: s.cfg.TTL,
		}
		if info == nil {
			if st.CachedInfo().Config.Retention == jetstream.InterestPolicy {
				return nil, invalid("stream %q has interest retention and no consumer %q, so it keeps no message of that partition; use limits or work-queue retention", s.stream, want.Name)
			}
			change = append(change, want)
			continue
		}
		have := info.Config
		if have.FilterSubject != want.FilterSubject || have.PriorityPolicy != want.PriorityPolicy || !slices.Equal(have.PriorityGroups, want.PriorityGroups) {
			return nil, invalid("consumer %q on stream %q is not of this set: it has the filter %q, priority policy %v and groups %q; delete it, or choose another Name",
				want.Name, s.stream, have.FilterSubject, have.PriorityPolicy, have.PriorityGroups)
		}
		if have.AckWait != want.AckWait || have.MaxAckPending != want.MaxAckPending || have.PinnedTTL != want.PinnedTTL {
			change = append(change, want)
		}
	}
	return change, err
}

// infos returns the info of each partition's consumer; nil where there is none.
func (s *Set) infos(ctx context.Context, st jetstream.Stream) ([]*jetstream.ConsumerInfo, error) {
	infos := make([]*jetstream.ConsumerInfo, s.cfg.Partitions)
	list := st.ListConsumers(ctx)
	for info := range list.Info() {
		if number, ok := strings.CutPrefix(info.Name, s.cfg.Name+"-"); ok {
			if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < len(infos) {
				infos[n] = info
			}
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("partition: list the consumers of stream %q: %w", s.stream, err)
	}
	return infos, nil
}

// setRecord is what the bucket says of the set.
type setRecord struct {
	Stream     string `json:"stream"`
	Partitions int    `json:"partitions"`
	Subject    string `json:"subject"`
}

func bucketName(set string) string { return "partition-" + set }

// openBucket creates or adopts the bucket, and refuses the set if it was made otherwise.
func (s *Set) openBucket(ctx context.Context, replicas int) error {
	name := bucketName(s.cfg.Name)
	kv, err := s.js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = s.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: name, Description: "members and owners of a set of partitions", Replicas: replicas,
			LimitMarkerTTL: time.Hour, // a member that is cut off for longer has lost its membership, and reads the bucket anew
		})
	}
	if err != nil {
		return fmt.Errorf("partition: bucket %q: %w", name, err)
	}
	s.bucket = newBucket(s.js, kv)
	want := setRecord{s.stream, s.cfg.Partitions, s.cfg.Subject}
	_, err = s.bucket.put(ctx, configKey, want, 0, 0)
	if err == nil || !conflicts(err) {
		return err
	}
	have, err := readRecord(ctx, kv)
	if err == nil && have != want {
		return invalid("set %q was made on stream %q with %d partitions of %q, not on %q with %d of %q; open it as it is, or delete it when nothing is pending and no member is there",
			s.cfg.Name, have.Stream, have.Partitions, have.Subject, want.Stream, want.Partitions, want.Subject)
	}
	return err
}

func readRecord(ctx context.Context, kv jetstream.KeyValue) (r setRecord, err error) {
	e, err := kv.Get(ctx, configKey)
	if err == nil {
		err = json.Unmarshal(e.Value(), &r)
	}
	if err != nil {
		return r, fmt.Errorf("partition: bucket %q: read key %q: %w", kv.Bucket(), configKey, err)
	}
	return r, nil
}

// Load returns a Set that was opened before, in any process, by its name. It creates and changes nothing.
func Load(ctx context.Context, js jetstream.JetStream, name string) (*Set, error) {
	if !validName(name) {
		return nil, invalid("Name %q: use 1 to 64 letters, digits, '-' and '_'", name)
	}
	kv, err := js.KeyValue(ctx, bucketName(name))
	if err != nil {
		return nil, fmt.Errorf("partition: set %q: bucket %q: %w", name, bucketName(name), err)
	}
	record, err := readRecord(ctx, kv)
	if err != nil {
		return nil, err
	}
	s := &Set{js: js, stream: record.Stream, cfg: Config{Name: name, Partitions: record.Partitions, Subject: record.Subject}, counts: new(counts)}
	s.bucket = newBucket(js, kv)
	c, err := js.Consumer(ctx, s.stream, s.consumer(0))
	if err != nil {
		return nil, fmt.Errorf("partition: consumer %q on stream %q: %w; open the set to create it", s.consumer(0), s.stream, err)
	}
	cfg := c.CachedInfo().Config
	s.cfg.AckWait, s.cfg.MaxAckPending, s.cfg.TTL = cfg.AckWait, cfg.MaxAckPending, cfg.PinnedTTL
	s.resets, err = checkServer(js.Conn().ConnectedServerVersion())
	return s, err
}

// Config returns what the set is made of.
func (s *Set) Config() Config { return s.cfg }

// Stream returns the name of the stream.
func (s *Set) Stream() string { return s.stream }

// Consume makes this process a member of the set until ctx ends. It runs h for the messages of the partitions that the member
// owns, and passes partitions on when members join or leave. Each call in a process is a member of its own.
//
// When ctx ends, handlers finish within their DrainTimeout, what was not started is handed back, and the partitions are
// released. Consume then returns nil, or an error that matches [jetpull.ErrDrainTimeout] where handlers still run; their partitions pass on
// when the TTL is over. It returns [ErrMemberInUse] if the name is taken, and an error where the bucket or a consumer was deleted or an
// option cannot be used. A lost membership is no error: the member joins again.
func (s *Set) Consume(ctx context.Context, h jetpull.Handler, opts ...Option) error {
	if h == nil {
		return invalid("handler is nil; give the function that handles a message")
	}
	o, err := newOptions(opts)
	if err != nil {
		return err
	}
	m := &member{
		table: s.bucket, queues: &consumers{s, o.consume}, options: o, handler: h, ttl: s.cfg.TTL, counts: s.counts,
		view: newView(s.cfg.Partitions), ended: make(chan *run, s.cfg.Partitions),
	}
	return m.consume(ctx)
}

// Partition is the state of a partition.
type Partition struct {
	Number int
	// Member is the name of the owner, or "" where there is none, or one that is gone.
	Member string
	// Since is when the owner took it, by the server's clock.
	Since time.Time
	// Pending counts messages that were not delivered yet, and AckPending those that were and are not acknowledged.
	Pending, AckPending uint64
}

// Status returns the state of all partitions, in order. It reads the bucket and lists the stream's consumers.
func (s *Set) Status(ctx context.Context) ([]Partition, error) {
	v, err := snapshot(ctx, s.bucket, s.cfg.Partitions)
	if err != nil {
		return nil, err
	}
	st, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return nil, fmt.Errorf("partition: stream %q: %w", s.stream, err)
	}
	infos, err := s.infos(ctx, st)
	if err != nil {
		return nil, err
	}
	all := make([]Partition, s.cfg.Partitions)
	for n, info := range infos {
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

// ErrHasMembers says that a set cannot be deleted while it has members.
var ErrHasMembers = errors.New("partition: the set has members")

// Delete deletes the consumers and the bucket of the set, and no message. It is refused with [ErrHasMembers] while members are there; one
// that crashed is, until its TTL is over. A Delete that failed can be repeated.
func (s *Set) Delete(ctx context.Context) error {
	v, err := snapshot(ctx, s.bucket, s.cfg.Partitions)
	if err != nil {
		return err
	}
	if names, _ := v.names(time.Now()); len(names) > 0 {
		return fmt.Errorf("%w: %q; stop them first", ErrHasMembers, names)
	}
	for n := range s.cfg.Partitions {
		if err := s.js.DeleteConsumer(ctx, s.stream, s.consumer(n)); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("partition: delete consumer %q on stream %q: %w", s.consumer(n), s.stream, err)
		}
	}
	if err := s.js.DeleteKeyValue(ctx, s.bucket.kv.Bucket()); err != nil {
		return fmt.Errorf("partition: delete bucket %q: %w", s.bucket.kv.Bucket(), err)
	}
	return nil
}
