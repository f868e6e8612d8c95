package jsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/broker"
)

// The node that dispatches a shard is the one that has the pin of the shard's
// consumer, which reads a stream of ticks. Every node publishes ticks, because the
// server gives a pin only with a message. Nothing is in them but who sent them, and
// when: a node that gets its own tick back knows that it had the pin then.
const (
	shardCount = 8
	shardGroup = "dispatch"
	// shardPinTTL is how long a node that died keeps the others waiting.
	shardPinTTL = 5 * time.Second
	// shardPull is how long a pull lasts. Only a new pull keeps the pin, so it is well
	// under the pin's time to live.
	shardPull = shardPinTTL / 3
	// tickPause is the time between two ticks of a node.
	tickPause = 500 * time.Millisecond
	// shardLease is how long a tick proves that a shard is this node's, from when it
	// was sent. The pin lives at least shardPinTTL less shardPull longer than a tick
	// that came with it, so the lease ends before another node can have it, unless
	// the server takes it away.
	shardLease = 3 * time.Second
	// handOver is what the last owner has to write down what it has in progress.
	handOver = 250 * time.Millisecond
	// newsTime bounds the wait for the records that others have written.
	newsTime = 500 * time.Millisecond
	// shardClose bounds the giving up of a pin.
	shardClose = 5 * time.Second
	shardPause = time.Second
)

// shards is this node's part in dispatching.
type shards struct {
	node  string // names it in its ticks
	begin time.Time
	held  [shardCount]atomic.Pointer[lease]
}

// lease is that a shard is this node's for a while.
type lease struct {
	until   time.Duration // since shards.begin
	outages uint64        // of the connection before; after another it is not known
}

// tick is what nodes publish.
type tick struct {
	Node    string
	Sent    time.Duration // since shards.begin of the node
	Outages uint64
}

// takeOver is what a node tells the others before it dispatches a shard.
type takeOver struct {
	Node  string
	Shard int
}

func (s *Store) ticks() string               { return s.cfg.Name + "_ticks" }
func (s *Store) tickSubject() string         { return s.cfg.Name + ".t" }
func (s *Store) takeOverSubject() string     { return s.cfg.Name + ".x.dispatch" }
func shardConsumer(shard int) string         { return "shard_" + strconv.Itoa(shard) }
func (h *shards) now() time.Duration         { return time.Since(h.begin) }
func (h *shards) lease(shard int) *lease     { return h.held[shard].Load() }
func (h *shards) set(shard int, held *lease) { h.held[shard].Store(held) }

// Shard implements broker.Shards.
func (s *Store) Shard(channel string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(channel))
	return int(h.Sum32() % shardCount)
}

// Shards implements broker.Shards.
func (s *Store) Shards() int { return shardCount }

// Owns implements broker.Shards.
func (s *Store) Owns(shard int) bool {
	held := s.shards.lease(shard)
	return held != nil && held.until > s.shards.now() && held.outages == s.link.outages.Load()
}

// Recordable implements broker.Shards.
func (s *Store) Recordable() error {
	if o := s.link.current.Load(); o != nil {
		return fmt.Errorf("%w: not connected to NATS since %s", broker.ErrUnavailable, o.since.Format(time.TimeOnly))
	}
	if err := s.quorum.err(); err != nil {
		return err
	}
	if err := s.jobWrites.noRoom(); err != nil {
		return err
	}
	return s.diskFailure()
}

// Own implements broker.Shards. A process with a server of its own has all shards at
// once.
func (s *Store) Own(ctx context.Context, o broker.Ownership) {
	if !s.cfg.Shared {
		for shard := range shardCount {
			s.shards.set(shard, &lease{until: math.MaxInt64, outages: s.link.outages.Load()})
			o.Gained(shard)
		}
		<-ctx.Done()
		return
	}
	var wg sync.WaitGroup
	holders := make([]*holder, shardCount)
	for shard := range shardCount {
		holders[shard] = &holder{s: s, shard: shard, o: o, events: make(chan func(), 16)}
		wg.Go(func() { holders[shard].hold(ctx) })
	}
	unhear := s.hearTakeOvers(holders)
	defer unhear()
	s.sendTicks(ctx)
	wg.Wait()
	s.sendTick() // the pins that were given up go to others with it
}

// sendTicks runs until ctx ends.
func (s *Store) sendTicks(ctx context.Context) {
	ticker := time.NewTicker(tickPause)
	defer ticker.Stop()
	for {
		s.sendTick()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// sendTick is not confirmed: another follows.
func (s *Store) sendTick() {
	b, err := json.Marshal(tick{Node: s.shards.node, Sent: s.shards.now(), Outages: s.link.outages.Load()})
	if err == nil && s.link.current.Load() == nil {
		err = s.nc.Publish(s.tickSubject(), b)
	}
	if err != nil {
		s.log.Debug("tick of a node", "error", err)
	}
}

// hearTakeOvers listens to the nodes that are about to dispatch.
func (s *Store) hearTakeOvers(holders []*holder) (stop func()) {
	sub, err := s.nc.Subscribe(s.takeOverSubject(), func(msg *nats.Msg) {
		var t takeOver
		if err := json.Unmarshal(msg.Data, &t); err != nil || t.Shard < 0 || t.Shard >= shardCount {
			s.log.Warn("notice of a node that dispatches cannot be read and is ignored", "notice", string(msg.Data), "error", err)
			return
		}
		if h := holders[t.Shard]; t.Node != s.shards.node {
			h.post(h.lose)
		}
	})
	if err != nil {
		// Then this node learns from its next pull that it has lost a pin.
		s.log.Info("listening to nodes that take over", "error", err)
		return func() {}
	}
	return func() { _ = sub.Unsubscribe() }
}

// holder is this node's hold on a shard. What happens to it happens in order.
type holder struct {
	s      *Store
	shard  int
	o      broker.Ownership
	events chan func()
	active bool // gained and not lost
}

// post leaves out what does not fit: ticks follow, and a pin that was lost is so at
// the next pull too.
func (h *holder) post(event func()) {
	select {
	case h.events <- event:
	default:
	}
}

// hold reads the ticks of a shard until ctx ends, and then hands it over.
func (h *holder) hold(ctx context.Context) {
	reading, halt := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		for reading.Err() == nil {
			err := h.read(reading)
			if reading.Err() != nil {
				return
			}
			h.s.log.Info("ticks of a shard are read again", "shard", h.shard, "error", err)
			select {
			case <-reading.Done():
			case <-time.After(shardPause):
			}
		}
	})
	for ctx.Err() == nil {
		select {
		case event := <-h.events:
			event()
		case <-ctx.Done():
		}
	}
	h.lose()
	halt() // gives the pin up, after what is in progress was written down
	wg.Wait()
}

// lose has the broker stop, and write down what it has in progress.
func (h *holder) lose() {
	h.s.shards.set(h.shard, nil)
	if h.active {
		h.active = false
		h.s.log.Info("dispatching of a shard ends here", "shard", h.shard)
		h.o.Lost(h.shard)
	}
}

// read reads ticks until ctx ends.
func (h *holder) read(ctx context.Context) error {
	s, name := h.s, shardConsumer(h.shard)
	_, err := s.js.CreateOrUpdateConsumer(ctx, s.ticks(), jetstream.ConsumerConfig{
		Durable: name, Description: "broker: who dispatches the shard", DeliverPolicy: jetstream.DeliverNewPolicy,
		AckPolicy:      jetstream.AckNonePolicy,
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{shardGroup}, PinnedTTL: shardPinTTL,
	})
	if err != nil {
		return fmt.Errorf("make consumer %s: %w", name, err)
	}
	sub, err := jetpull.Subscribe(ctx, s.js, s.ticks(), name,
		jetpull.Group(shardGroup), jetpull.MaxWait(shardPull), jetpull.Logger(s.log.With("shard", h.shard)))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shardClose)
		defer cancel()
		if err := sub.Close(ctx); err != nil {
			s.log.Info("the pin of a shard is left to expire", "shard", h.shard, "error", err)
		}
	}()
	return sub.Consume(ctx, func(_ context.Context, msg *jetpull.Msg) error {
		var t tick
		if err := json.Unmarshal(msg.Data(), &t); err == nil && t.Node == s.shards.node {
			h.post(func() { h.proved(ctx, t) })
		}
		return nil
	},
		jetpull.OnPin(func(jetpull.PinEvent) { s.sendTick() }),
		jetpull.OnUnpin(func(jetpull.PinEvent) { h.post(h.lose) }),
		jetpull.OnError(func(err error) { s.log.Info("ticks", "shard", h.shard, "error", err) }))
}

// proved takes in that this node had the pin when it had sent a tick.
func (h *holder) proved(ctx context.Context, t tick) {
	s := h.s
	held := &lease{until: t.Sent + shardLease, outages: t.Outages}
	owned := h.active && s.Owns(h.shard)
	if held.until <= s.shards.now() || held.outages != s.link.outages.Load() {
		return
	}
	if owned {
		s.shards.set(h.shard, held)
		return
	}
	if err := s.takeOver(ctx, h.shard); err != nil {
		s.log.Info("a shard is taken over without the last news of its jobs", "shard", h.shard, "error", err)
	}
	s.shards.set(h.shard, held)
	h.active = true
	s.log.Info("dispatching of a shard begins here", "shard", h.shard)
	h.o.Gained(h.shard)
}

// takeOver tells the last owner, waits while it writes down what it has in progress,
// and then until that is known here.
func (s *Store) takeOver(ctx context.Context, shard int) error {
	b, err := json.Marshal(takeOver{Node: s.shards.node, Shard: shard})
	if err != nil {
		return err
	}
	if err := s.nc.Publish(s.takeOverSubject(), b); err != nil {
		return err
	}
	select {
	case <-time.After(handOver):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, newsTime)
	defer cancel()
	// Asked through another handle: that one's cached state is read elsewhere.
	jobs, err := s.js.Stream(ctx, s.cfg.jobs())
	if err != nil {
		return err
	}
	return s.jobsSeen.wait(ctx, jobs.CachedInfo().State.LastSeq)
}

// dropFeeds deletes the durables that an older store had for each push consumer.
func (s *Store) dropFeeds(ctx context.Context) error {
	names := s.messageStream.ConsumerNames(ctx)
	var feeds []string
	for name := range names.Name() {
		if strings.HasPrefix(name, "push_") {
			feeds = append(feeds, name)
		}
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("list the consumers of stream %s: %w", s.cfg.messages(), err)
	}
	for _, name := range feeds {
		if err := s.js.DeleteConsumer(ctx, s.cfg.messages(), name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("delete consumer %s of an older broker: %w", name, err)
		}
	}
	return nil
}
