package sim

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/model"
)

// schedule is one run of a plan.
type schedule struct {
	*journal
	tb       testing.TB
	model    *model.Model
	consumer *model.Consumer
	procs    []*process // those that stay on
	calm     atomic.Bool
	staying  context.Context // ends when all end
	leave    context.CancelFunc
}

// simulate runs a plan in the bubble it is called in. The findings are in the journal.
func simulate(tb testing.TB, p *plan) *schedule {
	m := model.New(tb, p.model)
	m.AddStream(streamName, streamName+".>")
	m.AddStream(deadStream, deadSubject)
	m.LosePublishes(deadStream, p.loseDead)
	for _, pause := range p.before {
		time.Sleep(pause)
		m.Publish(streamName+".k0", nil, nil)
	}
	s := &schedule{journal: newJournal(p), tb: tb, model: m, consumer: m.AddConsumer(streamName, p.consumer)}
	s.staying, s.leave = context.WithCancel(context.Background())
	defer s.leave()
	s.runActive()
	s.quiet = s.now()
	s.runCalm()
	return s
}

// runActive lets everything happen at once, and returns when the faults are over and all actors are gone.
func (s *schedule) runActive() {
	var all sync.WaitGroup
	all.Go(s.publishAll)
	all.Go(s.breakAll)
	all.Go(s.stallAll)
	stay := make([]*process, len(s.plan.procs))
	for i, lives := range s.plan.procs {
		all.Go(func() { stay[i] = s.liveAll(i, lives) })
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	s.waitFor(done, s.plan.active+activeSlack, "the actors to end")
	s.procs = stay
}

// activeSlack is how long after the active phase its last actor may end: the longest handler, its drain, and the end of its stream.
const activeSlack = 45 * time.Second

// waitFor waits for something that has to happen.
func (s *schedule) waitFor(done <-chan struct{}, most time.Duration, what string) {
	select {
	case <-done:
	case <-time.After(most):
		s.wrong("waited %v in vain for %s", most, what)
		<-done
	}
}

func (s *schedule) liveAll(proc int, lives []life) *process {
	var p *process
	for i, l := range lives {
		time.Sleep(l.from - s.now())
		p = connect(s.tb, s.model, s.journal, lifeName(proc, i))
		p.staying, p.calm = s.staying, &s.calm
		p.live(l)
	}
	return p
}

func (s *schedule) publishAll() {
	for _, m := range s.plan.publish {
		time.Sleep(m.at - s.now())
		s.model.Publish(m.subject, nil, make([]byte, m.size))
	}
}

// crashForgets is how far back what a crash makes the server forget may lie.
const crashForgets = 150 * time.Millisecond

// recovery is how long clients take to be back after the server is.
const recovery = 2 * time.Second

// breakAll brings about the faults.
func (s *schedule) breakAll() {
	for i, f := range s.plan.faults {
		time.Sleep(f.at - s.now())
		from := s.now()
		s.locked(func(time.Duration) { s.plan.faults[i].at = from }) // one before it may have taken longer
		s.breakOne(f)
		if f.kind == faultUnpin || f.kind == faultAlter || f.kind == faultReset {
			continue
		}
		if f.kind == faultCrash {
			from -= crashForgets
		}
		s.broke(from, s.now()+s.plan.model.Outage.Max+recovery)
	}
	time.Sleep(s.plan.active - s.now())
}

// stallAll stalls the link.
func (s *schedule) stallAll() {
	for _, stall := range s.plan.stalls {
		time.Sleep(stall.from - s.now())
		s.model.Peer().Stall(true)
		time.Sleep(stall.to - s.now())
		s.model.Peer().Stall(false)
	}
}

// breakOne causes a fault and returns when it is over.
func (s *schedule) breakOne(f fault) {
	peer := s.model.Peer()
	switch f.kind {
	case faultCut:
		peer.Cut()
	case faultStep:
		s.consumer.StepDown()
	case faultUnpin:
		if s.plan.pinned() {
			s.consumer.Unpin(groupName)
		}
	case faultPause:
		s.consumer.Pause(time.Now().Add(f.length))
	case faultHush:
		peer.Pause(true)
		time.Sleep(f.length)
		peer.Pause(false)
		s.hushes = append(s.hushes, span{f.at, s.now() + s.plan.trip()})
	case faultStop:
		s.model.Shutdown()
		time.Sleep(f.length + 100*time.Millisecond)
		s.model.Start()
	case faultGone:
		s.consumer.Delete()
		time.Sleep(f.length)
		s.changed(f.to)
		s.consumer = s.model.AddConsumer(streamName, f.to)
	case faultReset:
		s.consumer.Reset(1)
	case faultAlter:
		if !s.model.Down() {
			s.changed(f.to)
			s.consumer.Update(func(cfg *jetstream.ConsumerConfig) {
				to := f.to
				to.Name, to.PauseUntil = cfg.Name, cfg.PauseUntil
				*cfg = to
			})
		}
	case faultCrash:
		s.model.Crash()
		time.Sleep(f.length)
		s.model.Start()
	}
}

// runCalm works everything off, and then stops in the middle of work.
func (s *schedule) runCalm() {
	time.Sleep(s.plan.model.Outage.Max + recovery)
	s.calm.Store(true)
	s.model.LosePublishes(deadStream, 0) // a dead letter that is lost again and again is tried for minutes
	ctx := s.staying
	var consuming sync.WaitGroup
	for _, p := range s.procs {
		if !p.bound.Load() {
			limit, stop := context.WithTimeout(ctx, 30*time.Second)
			ok := p.subscribe(limit)
			stop()
			if !ok {
				s.wrong("%s: cannot subscribe though all is calm", p.name)
				return
			}
		}
		if p.lasting {
			consuming.Go(p.goesOn.Wait)
		} else {
			consuming.Go(func() { p.workOff(ctx) })
		}
	}
	s.awaitSettled(s.patience(), "everything to be settled")
	s.probe()
	s.stopAll(&consuming)
	s.inspect()
}

// patience is how long it may take until all is settled after the faults: a message that was forgotten waits for its AckWait, and so does one whose
// frame was lost, perhaps more than once; one whose handler failed last waits for its retry.
func (s *schedule) patience() time.Duration {
	_, most := s.plan.ackWaits()
	most = 2*most + 2*s.plan.consumer.PinnedTTL + 30*time.Second
	if s.plan.model.Lose > 0 {
		most *= 5
	}
	return most + retryMost + s.replayMost()
}

// replayMost is how long the server may pause where it replays at original speed. It pauses again for a message behind one that is redelivered,
// and redelivers again and again what waits for an acknowledgement while it pauses for longer than AckWait.
func (s *schedule) replayMost() time.Duration {
	if len(s.plan.before) == 0 {
		return 0
	}
	most := s.plan.active
	for _, pause := range s.plan.before {
		most += pause
	}
	if least, _ := s.plan.ackWaits(); slices.Max(s.plan.before) > least {
		most *= 5
	}
	return 5 * most
}

// workOff is what a process does in the calm phase. Consume refuses ack policy all.
func (p *process) workOff(ctx context.Context) {
	r := &run{life: p.name, kind: useConsume, keepAlive: true}
	handle := func(_ context.Context, m *jetpull.Msg) error {
		h := p.handed(p.name, r, m)
		p.settled(h, acked)
		p.returned(h)
		return nil
	}
	p.began(r)
	defer context.AfterFunc(ctx, func() { p.stopping(p.name, r) })()
	var err error
	if p.plan.ackAll() {
		r.kind = useMessages
		for m, end := range p.sub.Messages(ctx) {
			if err = end; err == nil && handle(ctx, m) == nil {
				err = m.Ack()
			}
		}
	} else {
		err = p.sub.Consume(ctx, handle)
	}
	p.ended(r)
	if err != nil && ctx.Err() == nil && !p.closing.Load() {
		p.wrong("%s: %s in the calm: %v", p.name, r.kind, err)
	}
}

// awaitSettled waits until the consumer has nothing left to do.
func (s *schedule) awaitSettled(most time.Duration, what string) bool {
	until := time.Now().Add(most)
	for len(s.consumer.Unsettled()) > 0 {
		if time.Now().After(until) {
			// With ack policy all, an acknowledgement from before a crash can raise the floor above what is delivered. The server
			// ignores others until it has delivered more.
			if state := s.consumer.State(); !s.plan.ackAll() || state.AckFloor.Consumer <= state.Delivered.Consumer {
				s.wrong("waited %v in vain for %s; left are %v, state %+v", most, what, s.consumer.Unsettled(), state)
			}
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

// missedHeartbeats is how long a client counts on a pull that the server dropped without a word, as it does where the pulls of all clients are more
// than it queues.
const missedHeartbeats = 5 * time.Second

// pullMost is how long a pull lives.
const pullMost = 30 * time.Second

// retryMost is the longest that a message waits for its retry, by default.
const retryMost = 72 * time.Second

// probes is how many messages a probe has.
const probes = 3

// probe publishes when all has been quiet for a while: the messages have to be worked off at once.
func (s *schedule) probe() {
	for _, p := range s.procs { // what waits here for its retry, or its dead letter, may be settled elsewhere by now
		busy := func() bool { st := p.sub.Stats(); return st.Buffered+st.Running > 0 }
		for until := time.Now().Add(retryMost); busy() && time.Now().Before(until); {
			time.Sleep(time.Second)
		}
	}
	time.Sleep(5 * time.Second)
	for range probes {
		s.model.Publish(streamName+".k0", nil, nil)
	}
	most := time.Second + 4*s.plan.trip() + s.replayMost()
	if s.pinLeft() {
		most += s.plan.consumer.PinnedTTL
	}
	if n := s.plan.consumer.MaxWaiting; n > 0 && n < 4*len(s.procs) {
		most += missedHeartbeats
	}
	if c := s.plan.consumer; s.plan.ackNone() && c.MaxWaiting > 0 && c.PriorityPolicy == jetstream.PriorityPolicyOverflow {
		most += pullMost // pulls of calls that are over may fill the queue, and wait for more messages than there are
	}
	if s.plan.model.Lose > 0 {
		most = s.patience()
	}
	s.awaitSettled(most+s.lapse(probes), "the probe to be settled")
	time.Sleep(time.Second + s.plan.trip())
	for _, p := range s.procs {
		s.awaitOrder(p)
	}
}

// awaitOrder waits until a process has on order what the windows of its streams hold. Its last pull may have been refused a moment ago, by a
// configuration that it had not seen, or may bring but a part, until it is over and one takes the place of all.
func (s *schedule) awaitOrder(p *process) {
	most, want := time.Second+s.plan.trip(), 1
	if windows := s.windows(p.name); windows > want && !s.plan.pinned() { // with a pin pulls overlap, to refresh it
		most, want = most+2*pullMost, windows // a pull that was sent while another was open ends up to 30 s after it
	}
	until := time.Now().Add(most)
	for s.plan.consumer.MaxWaiting == 0 {
		st := p.sub.Stats()
		if st.Outstanding+st.Buffered+st.Running >= want {
			return
		}
		if time.Now().After(until) {
			s.wrong("%s: has less than %d messages on order though all is quiet: %+v", p.name, want, st)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// windows is how many messages the streams of a life that go on keep on order: what their Prefetch says, but no more
// than a pull may ask for and the consumer delivers.
func (s *schedule) windows(life string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		if r.life != life || r.over {
			continue
		}
		window := max(1, r.prefetch)
		if s.plan.trip() > 15*time.Millisecond { // behind a slow link no more is on order than a stop can wait for
			window = min(window, 16)
		}
		for _, c := range s.plan.all() {
			for _, limit := range []int{c.MaxRequestBatch, c.MaxAckPending} {
				if limit > 0 {
					window = min(window, limit)
				}
			}
		}
		n += window
	}
	return n
}

// lapse is how long the server may deliver n messages again and again: after a crash it takes an acknowledgement of what it has forgotten it
// delivered, and then neither counts deliveries with numbers up to that one nor takes their acknowledgements.
func (s *schedule) lapse(n int) time.Duration {
	state := s.consumer.State()
	if !s.plan.ackAll() || state.AckFloor.Consumer <= state.Delivered.Consumer {
		return 0
	}
	rounds := int64(state.AckFloor.Consumer-state.Delivered.Consumer)/int64(n) + 1
	return time.Duration(rounds * int64(s.plan.consumer.AckWait+time.Second))
}

// burst is how many messages are on their way when all processes end.
const burst = 30

// stopAll ends all processes while messages are on their way to them: one half by the context of Consume, the other by Close.
func (s *schedule) stopAll(consuming *sync.WaitGroup) {
	for range burst {
		s.model.Publish(streamName+".k0", nil, nil)
	}
	time.Sleep(time.Duration(s.plan.seed%7) * s.plan.trip() / 6)
	var closing sync.WaitGroup
	if s.plan.seed%2 == 0 {
		s.leave()
	}
	for _, p := range s.procs {
		closing.Go(p.close)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		closing.Wait()
		consuming.Wait()
	}()
	s.waitFor(done, closeWait, "Consume and Close to return")
	for _, p := range s.procs {
		p.finished()
	}
}

// inspect looks whether what the others did not get is there for the next one at once.
func (s *schedule) inspect() {
	if s.plan.ackNone() {
		return // there is nothing that could be handed back
	}
	left := s.pinLeft()
	p := connect(s.tb, s.model, s.journal, "inspector")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !p.subscribe(ctx) {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.workOff(ctx)
	}()
	most := 2*time.Second + 6*s.plan.trip() + s.replayMost()
	for _, c := range s.plan.all() {
		if n := c.MaxAckPending; n > 0 {
			most = max(most, 2*time.Second+time.Duration(2*burst/n+7)*s.plan.trip())
		}
	}
	if s.plan.ackAll() {
		// Behind the acknowledgement of a redelivery the server ignores that of a delivery with a lower number, though
		// its sequence is higher, and delivers the message again.
		_, longest := s.plan.ackWaits()
		most += longest + time.Second
	}
	if left {
		most += s.plan.consumer.PinnedTTL
	}
	if s.plan.model.Lose > 0 {
		most = s.patience()
	}
	s.awaitSettled(most, "what was handed back")
	cancel()
	s.waitFor(done, closeWait, "the inspector's Consume to return")
	p.close()
	p.finished()
}

// pinLeft reports whether the pin is of a life that is over, and did not give it up, or of a client that never heard of it: no pull names it. It
// is free after PinnedTTL. See checkPins for the first.
func (s *schedule) pinLeft() bool {
	history := s.model.History()
	i := len(history) - 1
	for i >= 0 && history[i].Kind != model.Pinned && history[i].Kind != model.Unpinned {
		i--
	}
	if i < 0 || history[i].Kind == model.Unpinned {
		return false
	}
	pin, end := history[i].Text, s.lives[lifeOf(history[i].Reply)]
	known := slices.ContainsFunc(history[i:], func(e model.Event) bool { return e.Kind == model.Pulled && strings.Contains(e.Text, pin) })
	return !known || end != nil && (end.killed > 0 || end.closed <= s.quiet)
}
