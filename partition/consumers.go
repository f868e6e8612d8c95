package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// group is the priority group of a set's consumers.
const group = "member"

func (s *Set) consumer(n int) string { return s.cfg.Name + "-" + strconv.Itoa(n) }

// infos returns the info of the stream, and then those of the set's consumers by their partitions, also over the number of partitions.
func (s *Set) infos(ctx context.Context) (*jetstream.StreamInfo, map[int]*jetstream.ConsumerInfo, error) {
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return nil, nil, fmt.Errorf("partition: stream %q: %w", s.stream, err)
	}
	infos := make(map[int]*jetstream.ConsumerInfo)
	list := stream.ListConsumers(ctx)
	for info := range list.Info() {
		if n, err := strconv.Atoi(strings.TrimPrefix(info.Name, s.cfg.Name+"-")); err == nil && info.Name == s.consumer(n) {
			infos[n] = info
		}
	}
	if err := list.Err(); err != nil {
		return nil, nil, fmt.Errorf("partition: list the consumers of stream %q: %w", s.stream, err)
	}
	return stream.CachedInfo(), infos, nil
}

// plan returns the consumers to create or update. One that is created begins with sequence start of the stream; 0 is the first. A consumer of
// the same name that is not of this set is refused.
func (s *Set) plan(infos map[int]*jetstream.ConsumerInfo, start uint64) (change []jetstream.ConsumerConfig, err error) {
	for n := range s.cfg.Partitions {
		want := jetstream.ConsumerConfig{
			Name: s.consumer(n), Durable: s.consumer(n), FilterSubject: strings.Replace(s.cfg.Subject, placeholder, strconv.Itoa(n), 1),
			AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1, PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{group},
		}
		if start > 0 {
			want.DeliverPolicy, want.OptStartSeq = jetstream.DeliverByStartSequencePolicy, start
		}
		info := infos[n]
		if info != nil {
			have := info.Config
			if have.FilterSubject != want.FilterSubject || have.PriorityPolicy != want.PriorityPolicy || !slices.Equal(have.PriorityGroups, want.PriorityGroups) {
				return nil, invalid("consumer %q on stream %q is not of this set: it has the filter %q, priority policy %v and groups %q; delete it, or choose another Name",
					want.Name, s.stream, have.FilterSubject, have.PriorityPolicy, have.PriorityGroups)
			}
			want = have
		}
		same := want.AckWait == s.cfg.AckWait && want.MaxAckPending == s.cfg.MaxAckPending && want.PinnedTTL == s.cfg.TTL
		want.AckWait, want.MaxAckPending, want.PinnedTTL = s.cfg.AckWait, s.cfg.MaxAckPending, s.cfg.TTL
		if info == nil || !same {
			change = append(change, want)
		}
	}
	return change, nil
}

func (s *Set) apply(ctx context.Context, change []jetstream.ConsumerConfig) error {
	for _, c := range change {
		if _, err := s.js.CreateOrUpdateConsumer(ctx, s.stream, c); err != nil {
			return fmt.Errorf("partition: create consumer %q on stream %q: %w", c.Name, s.stream, err)
		}
	}
	return nil
}

// remove deletes the consumers of the partitions from a number on.
func (s *Set) remove(ctx context.Context, infos map[int]*jetstream.ConsumerInfo, from int) error {
	for n := range infos {
		if n < from {
			continue
		}
		if err := s.js.DeleteConsumer(ctx, s.stream, s.consumer(n)); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("partition: delete consumer %q on stream %q: %w", s.consumer(n), s.stream, err)
		}
	}
	return nil
}

// consume handles messages of a partition until ctx ends, in order from the acknowledgement floor, and hands back all that was not handled.
// It returns the floor then, or 0 where it is not known. It ends with errMissed before it handles a message that overtook another.
func (s *Set) consume(ctx context.Context, n int, h jetpull.Handler, opts []jetpull.Option) (floor uint64, err error) {
	if err := s.rewind(ctx, s.consumer(n)); err != nil {
		return 0, err
	}
	sub, err := jetpull.Subscribe(context.WithoutCancel(ctx), s.js, s.stream, s.consumer(n), jetpull.Group(group))
	if err != nil {
		return 0, err
	}
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	bySubject := jetpull.OrderedBy(func(m *jetpull.Msg) string { return m.Subject() })
	info, err := sub.Info(ctx)
	switch {
	case err != nil:
	case s.resets && info.NumAckPending > 0:
		// A former owner that lost its lease, and has not noticed it, has pulled again since the reset. Missed finds messages that it gets from now on.
		err = errMissed
	default:
		err = sub.Consume(consuming, func(ctx context.Context, m *jetpull.Msg) error {
			if sub.Missed() > 0 {
				stop()
				return jetpull.Retry(time.Second, errMissed)
			}
			return h(ctx, m)
		}, append([]jetpull.Option{bySubject}, opts...)...)
		if err == nil && ctx.Err() == nil {
			err = errMissed
		}
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.TTL)
	defer cancel()
	err = errors.Join(err, sub.Close(closing))
	if info, bad := sub.Info(closing); bad == nil {
		floor = info.AckFloor.Stream
	}
	return floor, err
}

// rewind has the consumer deliver again from its acknowledgement floor, if anything that was delivered is not acknowledged: what was
// handed back would otherwise come in the order in which that was done. It unpins first: a process that was stopped can still have pulls
// open, and the reset would send messages to it.
func (s *Set) rewind(ctx context.Context, name string) error {
	if err := jetpull.Unpin(ctx, s.js, s.stream, name, group); err != nil {
		_, missing := s.info(ctx, name)
		return cmp.Or(missing, err) // an unpin says less of a consumer that is not there
	}
	info, err := s.info(ctx, name)
	if err != nil || info.NumAckPending == 0 {
		return err
	}
	if s.resets {
		s.counts.resets.Add(1)
		_, err := s.js.ResetConsumer(ctx, s.stream, name)
		return err
	}
	select { // the server then redelivers before it delivers others
	case <-time.After(s.cfg.AckWait + time.Second):
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (s *Set) info(ctx context.Context, name string) (*jetstream.ConsumerInfo, error) {
	consumer, err := s.js.Consumer(ctx, s.stream, name)
	if err != nil {
		return nil, fmt.Errorf("partition: consumer %q on stream %q: %w", name, s.stream, err)
	}
	return consumer.CachedInfo(), nil
}
