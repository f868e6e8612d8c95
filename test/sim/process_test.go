package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
)

// process is one life of a client: a connection and a Subscription.
type process struct {
	*journal
	tb      testing.TB
	staying context.Context // of actors that go on into the calm phase
	calm    *atomic.Bool    // it has begun
	goesOn  sync.WaitGroup  // those actors
	name    string
	nc      *nats.Conn
	sub     *jetpull.Subscription
	bound   atomic.Bool  // there is a sub
	closing atomic.Bool  // calls may return ErrClosed
	killed  atomic.Int64 // when the connection was closed under it
	closes  atomic.Int64 // when Close was first called
	since   time.Duration
	lasting bool   // it has actors that go on
	single  bool   // it has one actor
	pin     string // as the pin callbacks tell it; they come one at a time
}

// connect starts a process. Its inboxes begin with its name. The server need not be there.
func connect(tb testing.TB, m *model.Model, j *journal, name string) *process {
	p := &process{journal: j, tb: tb, name: name}
	p.nc = m.Connect(tb,
		nats.CustomInboxPrefix(name), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(10*time.Millisecond, 10*time.Millisecond),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrSlowConsumer) {
				j.wrong("%s: %v", name, err)
			}
		}))
	return p
}

// subscribe tries to make a Subscription until it can or ctx ends.
func (p *process) subscribe(ctx context.Context) bool {
	js := natstest.JetStream(p.tb, p.nc)
	var opts []jetpull.SubscribeOption
	if p.plan.pinned() {
		opts = append(opts, jetpull.OnPin(p.gained), jetpull.OnUnpin(p.lost))
	}
	if p.plan.consumer.PriorityPolicy != jetstream.PriorityPolicyNone {
		opts = append(opts, jetpull.Group(groupName))
	}
	for ctx.Err() == nil && !p.nc.IsClosed() {
		p.since = p.now()
		sub, err := p.subscribeOnce(ctx, js, opts)
		if err == nil {
			p.sub = sub
			p.bound.Store(true)
			return true
		}
		if errors.Is(err, jetpull.ErrInvalidOption) || errors.Is(err, jetstream.ErrConsumerNotFound) && !p.deleted(0) {
			p.wrong("%s: Subscribe: %v", p.name, err)
			return false
		}
		rest(ctx, 50*time.Millisecond)
	}
	return false
}

func (p *process) subscribeOnce(ctx context.Context, js jetstream.JetStream, opts []jetpull.SubscribeOption) (*jetpull.Subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return jetpull.Subscribe(ctx, js, streamName, consumerName, opts...)
}

var errEnd = errors.New("the active phase is over")

// gained and lost check that each change of the pin is reported once.
func (p *process) gained(e jetpull.PinEvent) {
	if p.pin != "" || e.ID == "" {
		p.wrong("%s: told of pin %q while it has %q", p.name, e.ID, p.pin)
	}
	p.pin = e.ID
}

func (p *process) lost(e jetpull.PinEvent) {
	if p.pin == "" || e.ID != p.pin {
		p.wrong("%s: told that pin %q is lost while it has %q", p.name, e.ID, p.pin)
	}
	p.pin = ""
}

// live runs a life up to its end. One that stays on keeps its Subscription; its actors are gone.
func (p *process) live(l life) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	stop := time.AfterFunc(l.to-p.now(), func() { p.part(l.end, cancel) })
	defer stop.Stop()
	if !p.subscribe(ctx) {
		if l.end != staysOn {
			p.nc.Close()
		}
		return
	}
	p.single = len(l.actors) == 1
	lasts := func(a actor) bool { return l.end == staysOn && p.plan.lasts(a.kind) }
	p.lasting = slices.ContainsFunc(l.actors, lasts) // before one of them looks
	var players sync.WaitGroup
	for _, a := range l.actors {
		all, until := &players, ctx
		if lasts(a) {
			all, until = &p.goesOn, p.staying
		}
		all.Go(func() {
			extra := rand.New(rand.NewPCG(a.seed, 1))
			(&player{process: p, actor: a, rng: rand.New(rand.NewPCG(a.seed, 0)), extra: extra, tight: oneIn(rand.New(rand.NewPCG(a.seed, 2)), 3)}).play(until)
		})
	}
	players.Wait()
	<-ctx.Done()
	if l.end != staysOn {
		p.close()
		p.finished()
	}
}

// part ends the actors of a life in its way.
func (p *process) part(end ending, cancel context.CancelCauseFunc) {
	switch {
	case end == isKilled:
		p.stopping(p.name, nil)
		p.closing.Store(true)
		p.killed.Store(int64(p.now()))
		p.nc.Close()
	case end == closes && p.bound.Load():
		p.close()
	}
	cancel(errEnd)
}

// closeWait is how long Close may take.
const closeWait = 20 * time.Second

// close closes the Subscription and the connection.
func (p *process) close() {
	p.closing.Store(true)
	p.closes.CompareAndSwap(0, int64(p.now()))
	p.stopping(p.name, nil)
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	if err := p.sub.Close(ctx); err != nil {
		p.wrong("%s: Close: %v", p.name, err)
	}
}

// finished notes the end of a life.
func (p *process) finished() {
	killed := time.Duration(p.killed.Load())
	if killed == 0 {
		// The last messages must arrive; they cannot while the connection is down.
		_ = p.nc.FlushTimeout(closeWait)
	}
	closed := p.now()
	if killed == 0 {
		p.checkSubscriptions()
	}
	p.nc.Close()
	p.life(p.name, lifeEnd{bound: p.since, killed: killed, closing: time.Duration(p.closes.Load()), closed: closed, stats: p.sub.Stats()})
}

// checkSubscriptions: a Subscription that was closed leaves none of its inboxes subscribed. The one that is left is of
// nats.go, for the answers to its requests. nats.go forgets one that drains up to a flush later.
func (p *process) checkSubscriptions() {
	for until := p.now() + closeWait; p.nc.NumSubscriptions() > 1 && !p.nc.IsClosed(); time.Sleep(100 * time.Millisecond) {
		if p.now() > until {
			p.wrong("%s: after Close %d subscriptions are left, and one is of requests", p.name, p.nc.NumSubscriptions())
			return
		}
	}
}
