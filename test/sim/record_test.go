package sim

import (
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// deliveryID is one delivery of one message, read from its reply subject.
type deliveryID struct{ seq, deliverSeq, count uint64 }

func (d deliveryID) String() string {
	return fmt.Sprintf("#%d delivery %d (%d.)", d.seq, d.deliverSeq, d.count)
}

// handing is one message that the client handed to an actor, and what the actor did with it. Times are since the schedule began.
type handing struct {
	deliveryID
	life  string
	run   *run // the Messages or Consume that it came by; nil: Next or Fetch
	key   string
	sent  time.Duration // the delivery, by the server
	at    time.Duration
	done  bool          // the handler returned
	over  time.Duration // when it did
	verb  string        // how it was settled; "" for not at all
	tried bool          // an acknowledgement was at least tried
	when  time.Duration // when it was settled
	dead  bool          // given up, with a dead letter
	late  bool          // its handler returned when its Consume had ended and its client closed

	// Of a handler that failed: how the message is then settled is found by conclude.
	failed      bool
	cancelled   bool          // by the end of its Consume: that is no attempt
	after       time.Duration // that it asked for by Retry; less than 0: it did not
	least, most int           // attempts, this one included
	mayDie      bool          // it may have been the last one, and its dead letter may have been stored
}

// inPlace reports whether a message may be retried in place.
func (h *handing) inPlace() bool { return h.failed && h.run.ordered }

// final reports whether a message was not to be handled again.
func (h *handing) final() bool { return h.verb == acked || h.verb == termed }

// The verbs of handings.
const (
	acked  = "ack"
	naked  = "nak"
	termed = "term"
	kept   = "retry in place"
)

// run is one Messages or Consume from its start to its end.
type run struct {
	life      string
	kind      string
	ordered   bool // one handler at a time for each key
	serial    bool // one handler at a time
	keepAlive bool
	prefetch  int  // 0: adaptive
	awaits    bool // the consumer, if it is deleted
	gone      bool // it ended because the consumer was deleted
	dead      bool // what is given up becomes a dead letter
	most      int  // attempts; 0: no limit of its own
	delays    []time.Duration
	timeout   time.Duration // of handlers; 0: none
	drain     time.Duration
	from, end time.Duration
	over      bool
	stopped   time.Duration // when it was stopped; 0: it was not
	pulled    bool          // it has come as far as to pull
	alone     bool          // there was no other at the time in its process
	single    bool          // nor any other call
}

// journal is what the processes note. Its methods may be called from any goroutine.
type journal struct {
	start time.Time
	plan  *plan

	mu       sync.Mutex
	handings []*handing
	runs     []*run
	wrongs   []string
	suspects map[uint64]bool // messages that something is wrong with
	calls    []call
	lives    map[string]*lifeEnd
	outages  []span        // when something was broken
	changes  []change      // of the consumer's configuration
	refusals []refusal     // of calls, by a limit of the consumer
	hushes   []span        // when nothing came through
	quiet    time.Duration // when the calm phase began
}

// call is one Next, Fetch, AckNext or ConfirmAcks.
type call struct {
	life string
	span
}

// span is a stretch of time.
type span struct{ from, to time.Duration }

// lifeEnd is what is known of a life at its end.
type lifeEnd struct {
	bound   time.Duration // when it began to read the consumer for its Subscription
	killed  time.Duration // when its connection was closed under it; 0: it was not
	closing time.Duration // when Close was called
	closed  time.Duration // when it had returned
	stats   jetpull.Stats
}

func newJournal(p *plan) *journal {
	return &journal{start: time.Now(), plan: p, lives: map[string]*lifeEnd{}, suspects: map[uint64]bool{}}
}

func (j *journal) now() time.Duration { return time.Since(j.start) }

// locked runs f, for any goroutine.
func (j *journal) locked(f func(now time.Duration)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f(time.Since(j.start))
}

// wrong notes what no client should do.
func (j *journal) wrong(format string, args ...any) {
	j.locked(func(now time.Duration) {
		j.wrongs = append(j.wrongs, fmt.Sprintf("%v: ", now)+fmt.Sprintf(format, args...))
	})
}

// wrongWith notes what is wrong with a message.
func (j *journal) wrongWith(seq uint64, format string, args ...any) {
	j.wrong("message #%d: "+format, append([]any{seq}, args...)...)
	j.locked(func(time.Duration) { j.suspects[seq] = true })
}

// handed notes a message that an actor got.
func (j *journal) handed(life string, r *run, m *jetpull.Msg) *handing {
	h := &handing{life: life, run: r, key: m.Subject()}
	if meta, err := m.Metadata(); err != nil {
		j.wrong("%s got a message without metadata: %v", life, err)
	} else {
		h.deliveryID = deliveryID{meta.Sequence.Stream, meta.Sequence.Consumer, meta.NumDelivered}
	}
	j.locked(func(now time.Duration) { h.at, j.handings = now, append(j.handings, h) })
	return h
}

// settled notes what an actor did with a message, at the time it did.
func (j *journal) settled(h *handing, verb string) {
	j.locked(func(now time.Duration) { h.verb, h.when, h.tried = verb, now, h.tried || verb == acked })
}

// failed notes that the handler of a message failed at a time.
func (j *journal) failed(h *handing, at, after time.Duration) {
	j.locked(func(time.Duration) { h.failed, h.when, h.after = true, at, after })
}

// unsettled takes a verb back that could not be sent.
func (j *journal) unsettled(h *handing) { j.locked(func(time.Duration) { h.verb = "" }) }

// returned notes that the handler of a message is done.
func (j *journal) returned(h *handing) {
	j.locked(func(now time.Duration) { h.done, h.over = true, now })
}

func (j *journal) began(r *run) {
	j.locked(func(now time.Duration) { r.from, j.runs = now, append(j.runs, r) })
}

// stopping notes that runs are stopped: r, or all of a life.
func (j *journal) stopping(life string, r *run) {
	j.locked(func(now time.Duration) {
		for _, o := range j.runs {
			if o.life == life && !o.over && o.stopped == 0 && (r == nil || o == r) {
				o.stopped = now
			}
		}
	})
}

func (j *journal) ended(r *run) { j.locked(func(now time.Duration) { r.end, r.over = now, true }) }

// called notes a call and what it took.
func (j *journal) called(life string, from time.Duration) {
	j.locked(func(now time.Duration) { j.calls = append(j.calls, call{life, span{from, now}}) })
}

// deleted reports whether the consumer was not there at some time since, or a moment before: what was on its way may still say so.
func (j *journal) deleted(since time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	f, ok := j.plan.deletion()
	until := f.at + f.length
	for _, s := range j.plan.stalls {
		if s.from <= until {
			until = max(until, s.to) // news of it is late
		}
	}
	return ok && j.now() >= f.at && since <= until+recovery
}

// change is a configuration that the consumer was given, by an update or when it was created again.
type change struct {
	at time.Duration
	jetstream.ConsumerConfig
}

func (j *journal) changed(cfg jetstream.ConsumerConfig) {
	j.locked(func(now time.Duration) { j.changes = append(j.changes, change{now, cfg}) })
}

// configs are the configurations that the consumer had from one time to another.
func (j *journal) configs(from, to time.Duration) (all []jetstream.ConsumerConfig) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.plan.consumer
	for _, c := range j.changes {
		if c.at > to {
			break
		}
		if c.at >= from {
			all = append(all, now)
		}
		now = c.ConsumerConfig
	}
	return append(all, now)
}

// refusal is a call that ended with ErrLimitExceeded.
type refusal struct {
	life, what string
	at         time.Duration
	call       pullCall
}

func (j *journal) wasRefused(r refusal) {
	j.locked(func(time.Duration) { j.refusals = append(j.refusals, r) })
}

// broke notes a stretch in which something was broken.
func (j *journal) broke(from, to time.Duration) {
	j.locked(func(time.Duration) { j.outages = append(j.outages, span{from, to}) })
}

// life is the end of a life, to be filled in.
func (j *journal) life(name string, end lifeEnd) {
	j.locked(func(time.Duration) { j.lives[name] = &end })
}
