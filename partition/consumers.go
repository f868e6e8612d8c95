package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/crash"
)

// group is the priority group of a set's consumers.
const group = "member"

func (s *Set) consumer(n int) string { return s.cfg.Name + "-" + strconv.Itoa(n) }

// infos are the infos of a set's consumers, by partition.
type infos map[int]*jetstream.ConsumerInfo

// infos returns the stream, and the infos of the set's consumers, including those above the number of partitions.
func (s *Set) infos(ctx context.Context) (jetstream.Stream, infos, error) {
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return nil, nil, fmt.Errorf("partition: stream %q: %w", s.stream, err)
	}
	all, list := infos{}, stream.ListConsumers(ctx)
	for info := range list.Info() {
		n, _ := strconv.Atoi(strings.TrimPrefix(info.Name, s.cfg.Name+"-"))
		want := s.consumerConfig(n)
		if info.Name == want.Name && info.Config.FilterSubject == want.FilterSubject && info.Config.PriorityPolicy == want.PriorityPolicy &&
			slices.Equal(info.Config.PriorityGroups, want.PriorityGroups) { // consumers of other programs can have names of that form
			all[n] = info
		}
	}
	if err := list.Err(); err != nil {
		return nil, nil, fmt.Errorf("partition: list the consumers of stream %q: %w", s.stream, err)
	}
	return stream, all, nil
}

// consumerConfig returns the part of a consumer's configuration that never changes.
func (s *Set) consumerConfig(n int) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Name: s.consumer(n), Durable: s.consumer(n), FilterSubject: s.cfg.filter(strconv.Itoa(n)),
		AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1, PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{group},
	}
}

// create creates the consumers that are missing, and updates the others. A new consumer begins with sequence start of the stream; 0 means the first
// message. If the server refuses one, create deletes those that it has created.
func (s *Set) create(ctx context.Context, have infos, start uint64) error {
	created := infos{}
	for n := range s.cfg.Partitions {
		c, call := s.consumerConfig(n), s.js.CreateConsumer
		if info := have[n]; info != nil {
			c, call = info.Config, s.js.UpdateConsumer
		} else if start > 0 {
			c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, start
		}
		same := c.AckWait == s.cfg.AckWait && c.MaxAckPending == s.cfg.MaxAckPending && c.PinnedTTL == s.cfg.TTL
		if c.AckWait, c.MaxAckPending, c.PinnedTTL = s.cfg.AckWait, s.cfg.MaxAckPending, s.cfg.TTL; same {
			continue
		}
		_, err := call(ctx, s.stream, c)
		if err == nil && have[n] == nil {
			created[n] = nil
		}
		if _, refused := errors.AsType[*jetstream.APIError](err); refused { // otherwise it may exist, and another Open continues from here
			err = errors.Join(err, s.remove(ctx, created))
		}
		if errors.Is(err, jetstream.ErrConsumerExists) {
			err = invalid("consumer %q on stream %q is not of this set; delete it, or use another Name: %v", c.Name, s.stream, err)
		}
		if err != nil {
			return fmt.Errorf("partition: create consumer %q on stream %q: %w", c.Name, s.stream, err)
		}
	}
	return nil
}

// remove deletes consumers.
func (s *Set) remove(ctx context.Context, some infos) error {
	for n := range some {
		if err := s.js.DeleteConsumer(ctx, s.stream, s.consumer(n)); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("partition: delete consumer %q on stream %q: %w", s.consumer(n), s.stream, err)
		}
	}
	return nil
}

// session implements consumer with a real server.
type session struct {
	set  *Set
	name string
	opts options
	sub  *jetpull.Subscription // nil before subscribe
	// pins counts the pins of the session. A pin is counted before its first message is handled. A second pin means that the consumer has another
	// leader, or that its server was restarted. It has then forgotten the messages handed back, and redelivers them after AckWait, behind newer ones.
	pins       atomic.Uint64
	reconnects uint64 // of the connection at subscribe
	delivered  uint64 // the highest sequence that was delivered, including to former owners
}

func (c *session) unpin(ctx context.Context) error {
	return jetpull.Unpin(ctx, c.set.js, c.set.stream, c.name, group)
}

func (c *session) reset(ctx context.Context) error {
	_, err := c.set.js.ResetConsumer(ctx, c.set.stream, c.name)
	return err
}

func (c *session) pending(ctx context.Context) (int, error) {
	consumer, err := c.set.js.Consumer(ctx, c.set.stream, c.name)
	if err != nil {
		return 0, fmt.Errorf("partition: consumer %q on stream %q: %w", c.name, c.set.stream, err)
	}
	c.delivered = max(c.delivered, consumer.CachedInfo().Delivered.Stream)
	return consumer.CachedInfo().NumAckPending, nil
}

func (c *session) subscribe(ctx context.Context) (err error) {
	c.reconnects = c.set.js.Conn().Stats().Reconnects
	pinned := jetpull.OnPin(func(jetpull.PinEvent) { c.pins.Add(1) })
	c.sub, err = jetpull.Subscribe(ctx, c.set.js, c.set.stream, c.name, jetpull.Group(group), jetpull.Logger(c.opts.logger), pinned)
	return err
}

func (c *session) fetch(ctx context.Context, n int) ([]*jetpull.Msg, error) {
	msgs, err := c.sub.Fetch(ctx, n, jetpull.NoWait())
	if errors.Is(err, jetpull.ErrNoMessages) {
		err = nil
	}
	return msgs, err
}

func (c *session) handBack(ctx context.Context, msgs []*jetpull.Msg) error {
	for _, m := range msgs {
		if err := m.Nak(); err != nil {
			return err
		}
	}
	// The consumer processes acknowledgements in order, so its answer to +WPI proves that it has processed the NAKs. +WPI itself changes nothing.
	_, err := c.set.js.Conn().RequestWithContext(ctx, msgs[len(msgs)-1].Reply(), []byte("+WPI"))
	if err == nil && c.set.js.Conn().Stats().Reconnects != c.reconnects {
		return errMissed
	}
	return err
}

func (c *session) consume(ctx context.Context, h jetpull.Handler, guard jetpull.Middleware) error {
	bySubject := jetpull.OrderedBy(func(m *jetpull.Msg) string { return m.Subject() })
	return c.sub.Consume(crash.WithDelivered(ctx, c.delivered), h, append([]jetpull.ConsumeOption{jetpull.Use(guard), bySubject}, c.opts.consume...)...)
}

func (c *session) missed() bool { return c.sub.Missed() > 0 || c.pins.Load() > 1 }

func (c *session) close() {
	if c.sub != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeMost)
		defer cancel()
		_ = c.sub.Close(ctx)
	}
}

// probe sends each kind of request that a member sends, in a form that changes nothing, so that a missing permission shows before the member owns a
// partition. The server answers each with an error, unless the user may not send it.
func (s *Set) probe(ctx context.Context) error {
	consumer := s.stream + "." + s.consumer(0)
	requests := [][2]string{
		{s.api + "CONSUMER.INFO." + consumer, ""},
		{s.api + "CONSUMER.UNPIN." + consumer, `{"group":""}`},
		{s.api + "CONSUMER.MSG.NEXT." + consumer, `{"batch":1,"no_wait":true}`},
		{"$JS.ACK." + consumer + ".1.9007199254740991.1.1.0", "+WPI"},
		{s.api + "STREAM.INFO.KV_" + s.bucketName(), ""},
		{s.api + "STREAM.MSG.GET.KV_" + s.bucketName(), `{"seq":0}`},
		{s.subject(recordKey), ""},
	}
	if s.resets {
		requests = append(requests, [2]string{s.api + "CONSUMER.RESET." + consumer, "{"})
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, r := range requests {
		m := &nats.Msg{Subject: r[0], Data: []byte(r[1]), Header: nats.Header{}}
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "9007199254740991") // so that the server refuses a write
		_, err := s.js.Conn().RequestMsgWithContext(ctx, m)
		if err != nil && !errors.Is(err, nats.ErrNoResponders) { // no responders: a leader is being elected
			return fmt.Errorf("partition: no answer on %s: the user needs the permission to publish there: %w", r[0], err)
		}
	}
	return nil
}
