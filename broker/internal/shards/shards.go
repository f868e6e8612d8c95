// Package shards divides the dispatching among the nodes of a broker. Each channel belongs to a shard. Each shard belongs to the node that has the
// pin of the shard's consumer.
package shards

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/watch"
)

// The node that has the pin of a shard's consumer dispatches the shard. The consumer reads a stream of ticks. Every node publishes ticks, because the
// server assigns a pin only with a message. A tick contains its sender and its time. A node that receives its own tick knows that it had the pin at
// that time.
const (
	shardCount = 8
	shardGroup = "dispatch"
	// shardPinTTL is how long the shards of a dead node have no owner.
	shardPinTTL = 4500 * time.Millisecond
	// shardPull is the duration of a pull. Only a new pull renews the pin, so it is well below the pin's time to live.
	shardPull = shardPinTTL / 3
	// tickPause is the interval between two ticks of a node.
	tickPause = 500 * time.Millisecond
	// shardLease is how long a tick proves the ownership of a shard, from when it was sent. The pin lives for at least shardPinTTL less shardPull
	// after a tick arrives with it. So the lease ends before another node can get the pin, unless the server withdraws the pin.
	shardLease = 3 * time.Second
	// handOver is how long the previous owner has to record its work in progress.
	handOver = 250 * time.Millisecond
	// falsePause is the minimum interval between checks with the server whether this node still has the pin, after notices of take-overs.
	falsePause = 20 * time.Millisecond
	// newsTime limits the wait for the records that other nodes have written.
	newsTime = 500 * time.Millisecond
	// shardClose is the time limit for the release of a pin.
	shardClose = 5 * time.Second
	shardPause = time.Second
)

// Sharing configures a Part.
type Sharing struct {
	JS   jetstream.JetStream
	Link Link
	// Shared specifies whether other nodes may exist.
	Shared bool
	// Ticks is the stream with the ticks, on TickSubject. A node that takes over a shard announces it on TakeOverSubject.
	Ticks, TickSubject, TakeOverSubject string
	// UpToNow returns when this node has read everything that is stored.
	UpToNow func(ctx context.Context) (last uint64, err error)
	Log     *slog.Logger
}

// Link reports the connection's state.
type Link interface {
	// Down returns an error with the start of the current outage, or nil. Outages returns how often the connection was lost.
	Down() error
	Outages() uint64
}

// New returns the part of a node that does not own a shard yet.
func New(s Sharing) *Part {
	return &Part{Sharing: s, node: domain.NewID(), begin: time.Now()}
}

// Part is this node's part in the dispatching.
type Part struct {
	Sharing
	node  string // names this node in its ticks
	begin time.Time
	held  [shardCount]atomic.Pointer[lease]
}

// lease is the ownership of a shard for a limited time.
type lease struct {
	until   time.Duration // since shards.begin
	outages uint64        // at the time of the tick; another outage ends the lease
}

// tick is a message that nodes publish.
type tick struct {
	Node    string
	Sent    time.Duration // since shards.begin of the node
	Outages uint64
}

// takeOver announces to the other nodes that a node is about to dispatch a shard. Any client of the account can send one, so the owner checks it with
// the server.
type takeOver struct {
	Node  string
	Shard int
}

func shardConsumer(shard int) string { return "shard_" + strconv.Itoa(shard) }
func (s *Part) now() time.Duration   { return time.Since(s.begin) }

// Shard returns the shard of a channel, from 0 to Shards-1.
func (s *Part) Shard(channel string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(channel))
	return int(h.Sum32() % shardCount)
}

// Shards returns the number of shards.
func (s *Part) Shards() int { return shardCount }

// Owns reports whether a callback of a shard may begin on this node now. A process with an embedded server owns its shards even during an outage,
// because there is no other node.
func (s *Part) Owns(shard int) bool {
	held := s.held[shard].Load()
	return held != nil && held.until > s.now() && (!s.Shared || held.outages == s.Link.Outages())
}

// Own takes part in the ownership of shards until ctx ends, and then hands over. A process with an embedded server owns all shards at once.
func (s *Part) Own(ctx context.Context, gained, lost func(shard int)) {
	if !s.Shared {
		for shard := range shardCount {
			s.held[shard].Store(&lease{until: math.MaxInt64})
			gained(shard)
		}
		<-ctx.Done()
		return
	}
	var wg sync.WaitGroup
	holders := make([]*holder, shardCount)
	for shard := range shardCount {
		holders[shard] = &holder{s: s, shard: shard, gained: gained, lost: lost, events: make(chan func(), 16), noticed: make(chan struct{}, 1)}
		wg.Go(func() { holders[shard].hold(ctx) })
	}
	defer s.hearTakeOvers(holders)()
	watch.Every(ctx, tickPause, s.sendTick)
	wg.Wait()
	s.sendTick() // the released pins move to other nodes with this tick
}

// sendTick publishes a tick. It needs no confirmation, because another tick follows.
func (s *Part) sendTick() {
	b, err := json.Marshal(tick{Node: s.node, Sent: s.now(), Outages: s.Link.Outages()})
	if err == nil && s.Link.Down() == nil {
		err = s.JS.Conn().Publish(s.TickSubject, b)
	}
	if err != nil {
		s.Log.Debug("tick of a node", "error", err)
	}
}

func (s *Part) hearTakeOvers(holders []*holder) (stop func()) {
	sub, err := s.JS.Conn().Subscribe(s.TakeOverSubject, func(msg *nats.Msg) {
		var t takeOver
		if err := json.Unmarshal(msg.Data, &t); err != nil || t.Shard < 0 || t.Shard >= shardCount {
			s.Log.Debug("notice of a node that dispatches cannot be read and is ignored", "error", err)
			return
		}
		if t.Node != s.node {
			select {
			case holders[t.Shard].noticed <- struct{}{}:
			default: // the pending check answers this notice too
			}
		}
	})
	if err != nil {
		// Without the subscription, this node finds out with its next pull that it has lost a pin.
		s.Log.Info("listening to nodes that take over", "error", err)
		return func() {}
	}
	return func() { _ = sub.Unsubscribe() }
}

// holder manages one shard on this node. It handles its events in order.
type holder struct {
	s      *Part
	shard  int
	gained func(shard int)
	lost   func(shard int)
	events chan func()
	// noticed has an element when another node has announced a take-over that this node has not checked yet.
	noticed chan struct{}
	sub     atomic.Pointer[jetpull.Subscription] // reads the ticks; nil if it does not read now
	active  bool                                 // gained was called after the last call of lost
}

// post drops an event if the queue is full: more ticks follow, and the next pull reports a lost pin again.
func (h *holder) post(event func()) {
	select {
	case h.events <- event:
	default:
	}
}

// hold reads the ticks of a shard until ctx ends, and then hands the shard over.
func (h *holder) hold(ctx context.Context) {
	reading, halt := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		for reading.Err() == nil {
			err := h.read(reading)
			if reading.Err() != nil {
				return
			}
			h.s.Log.Info("ticks of a shard are read again", "shard", h.shard, "error", err)
			_ = watch.Sleep(reading, shardPause)
		}
	})
	for ctx.Err() == nil {
		select {
		case event := <-h.events:
			event()
		case <-h.noticed:
			if h.active && h.pinned(ctx) {
				h.s.Log.Debug("a notice says that another node takes over a shard whose pin is here", "shard", h.shard)
				_ = watch.Sleep(ctx, falsePause)
			} else {
				h.lose()
			}
		case <-ctx.Done():
		}
	}
	h.lose()
	halt() // releases the pin, after the work in progress is recorded
	wg.Wait()
}

// lose makes the broker stop dispatching the shard and record its work in progress.
func (h *holder) lose() {
	h.s.held[h.shard].Store(nil)
	if h.active {
		h.active = false
		h.s.Log.Info("dispatching of a shard ends here", "shard", h.shard)
		h.lost(h.shard)
	}
}

// pinned reports whether, according to the server, this node still has the pin. A slow answer does not cost the shard, because any client can send a
// notice. If the server does not answer in half of a lease, pinned returns false: this node could hardly renew its lease either.
func (h *holder) pinned(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, shardLease/2)
	defer cancel()
	sub := h.sub.Load()
	if sub == nil {
		return false
	}
	pin, ok := sub.Pin()
	if !ok {
		return false
	}
	info, err := sub.Info(ctx)
	return err == nil && slices.ContainsFunc(info.PriorityGroups, func(g jetstream.PriorityGroupState) bool { return g.PinnedClientID == pin })
}

func (h *holder) read(ctx context.Context) error {
	s, name := h.s, shardConsumer(h.shard)
	_, err := s.JS.CreateOrUpdateConsumer(ctx, s.Ticks, jetstream.ConsumerConfig{
		Durable: name, Description: "broker: who dispatches the shard", DeliverPolicy: jetstream.DeliverNewPolicy,
		AckPolicy:      jetstream.AckNonePolicy,
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{shardGroup}, PinnedTTL: shardPinTTL,
	})
	if err != nil {
		return fmt.Errorf("make consumer %s: %w", name, err)
	}
	sub, err := jetpull.Subscribe(ctx, s.JS, s.Ticks, name,
		jetpull.Group(shardGroup), jetpull.MaxWait(shardPull), jetpull.Logger(s.Log.With("shard", h.shard)),
		jetpull.OnPin(func(jetpull.PinEvent) { s.sendTick() }), jetpull.OnUnpin(func(jetpull.PinEvent) { h.post(h.lose) }))
	if err != nil {
		return err
	}
	h.sub.Store(sub)
	defer func() {
		h.sub.Store(nil)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shardClose)
		defer cancel()
		if err := sub.Close(ctx); err != nil {
			s.Log.Info("the pin of a shard is left to expire", "shard", h.shard, "error", err)
		}
	}()
	return sub.Consume(ctx, func(_ context.Context, msg *jetpull.Msg) error {
		var t tick
		if err := json.Unmarshal(msg.Data(), &t); err == nil && t.Node == s.node {
			h.post(func() { h.proved(ctx, t) })
		}
		return nil
	},
		jetpull.OnError(func(err error) { s.Log.Info("ticks", "shard", h.shard, "error", err) }))
}

// proved renews the lease, because this node had the pin when it sent t.
func (h *holder) proved(ctx context.Context, t tick) {
	s := h.s
	held := &lease{until: t.Sent + shardLease, outages: t.Outages}
	owned := h.active && s.Owns(h.shard)
	if t.Sent > s.now() || held.until <= s.now() || held.outages != s.Link.Outages() {
		return // too old, or sent by another client in the name of this node
	}
	if owned {
		s.held[h.shard].Store(held)
		return
	}
	if err := s.takeOver(ctx, h.shard); err != nil {
		s.Log.Info("a shard is taken over without the last news of its jobs", "shard", h.shard, "error", err)
	}
	s.held[h.shard].Store(held)
	h.active = true
	s.Log.Info("dispatching of a shard begins here", "shard", h.shard)
	h.gained(h.shard)
}

// takeOver notifies the previous owner, waits while it records its work in progress, and then waits until the index has those records.
func (s *Part) takeOver(ctx context.Context, shard int) error {
	b, err := json.Marshal(takeOver{Node: s.node, Shard: shard})
	if err != nil {
		return err
	}
	if err := s.JS.Conn().Publish(s.TakeOverSubject, b); err != nil {
		return err
	}
	if err := watch.Sleep(ctx, handOver); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, newsTime)
	defer cancel()
	_, err = s.UpToNow(ctx)
	return err
}
