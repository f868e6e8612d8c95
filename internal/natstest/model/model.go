package model

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/natstest"
)

// Delay is a time drawn evenly from Min to Max. The zero value is no time.
type Delay struct{ Min, Max time.Duration }

// Config sets up a model. The zero value is one server that answers at once
// and loses nothing.
type Config struct {
	// Seed decides all that is drawn. Equal seeds draw the same, as far as the
	// client does the same things in the same order.
	Seed uint64
	// Replicas of all streams and consumers, 1 or 3; 0 means 1.
	Replicas int
	// Quorum is how long a replicated change takes to be agreed on. It only
	// matters with three replicas.
	Quorum Delay
	// Outage is how long a replicated consumer has no leader when it changes.
	Outage Delay
	// Wake is how long a consumer takes to notice that there is work, so that
	// several requests may come in between.
	Wake Delay
	// Up and Down are the latency of each operation of a client and of each
	// frame to it. Order is kept.
	Up, Down Delay
	// Lose is the share of a consumer's frames, from 0 to 1, that the server
	// sends and nobody gets.
	Lose float64
	// Remote says that clients are connected to another server than the one
	// the consumers are on, so that its end does not cut them off.
	Remote bool
}

// Model is a server with streams and consumers. Its methods may be called
// from any goroutine of its bubble.
type Model struct {
	tb   testing.TB
	peer *natstest.Peer
	cfg  Config

	mu      sync.Mutex
	rng     *rand.Rand
	down    bool
	closed  bool
	streams map[string]*stream
	jobs    jobs
	jobSeq  int
	timer   *time.Timer
	history []Event
}

// New starts a model and stops it when the test ends.
func New(tb testing.TB, cfg Config) *Model {
	tb.Helper()
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	if cfg.Replicas != 1 && cfg.Replicas != 3 {
		tb.Fatalf("model: %d replicas, want 1 or 3", cfg.Replicas)
	}
	m := &Model{
		tb:      tb,
		peer:    natstest.NewPeer(tb),
		cfg:     cfg,
		rng:     rand.New(rand.NewPCG(cfg.Seed, 0)),
		streams: map[string]*stream{},
	}
	m.timer = time.AfterFunc(time.Hour, m.tick)
	m.peer.Latency(m.latency)
	m.peer.OnPull(m.onPull)
	m.peer.OnAck(m.onAck)
	m.peer.ConfirmAcks(false)
	m.peer.OnRequest("$JS.API.CONSUMER.INFO.*.*", m.onConsumerInfo)
	m.peer.OnRequest("$JS.API.CONSUMER.UNPIN.*.*", m.onUnpin)
	m.peer.OnRequest("$JS.API.STREAM.INFO.*", m.onStreamInfo)
	m.peer.OnRequest("$JS.API.STREAM.NAMES", m.onStreamNames)
	tb.Cleanup(m.close)
	return m
}

// Lose sets the share of a consumer's frames that get lost from now on.
func (m *Model) Lose(share float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cfg.Lose = share
}

// Peer is the scripted peer under the model, for faults of the connection.
func (m *Model) Peer() *natstest.Peer { return m.peer }

// Connect connects nats.go to the model; see [natstest.Peer.Connect].
func (m *Model) Connect(tb testing.TB, opts ...nats.Option) *nats.Conn {
	tb.Helper()
	return m.peer.Connect(tb, opts...)
}

func (m *Model) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.timer.Stop()
}

// latency draws the times of one connection. Each direction has a source of
// its own, so that neither depends on what the other does.
func (m *Model) latency(conn int) (up, down func() time.Duration) {
	source := func(d Delay, stream uint64) func() time.Duration {
		if d.Max == 0 {
			return nil
		}
		rng := rand.New(rand.NewPCG(m.cfg.Seed, stream))
		return func() time.Duration { return d.draw(rng) }
	}
	return source(m.cfg.Up, uint64(2*conn)), source(m.cfg.Down, uint64(2*conn+1))
}

func (d Delay) draw(rng *rand.Rand) time.Duration {
	if d.Max <= d.Min {
		return d.Min
	}
	return d.Min + time.Duration(rng.Int64N(int64(d.Max-d.Min)+1))
}

// do changes the model and does what follows from it.
func (m *Model) do(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	change()
	m.settle()
}

// tick runs when something is due.
func (m *Model) tick() { m.do(func() {}) }

// settle runs all that is due now and sets the timer for what is due next.
func (m *Model) settle() {
	for {
		now := time.Now()
		ran := m.runJobs(now)
		for _, c := range m.consumers() {
			ran = c.fire(now) || ran
		}
		if !ran {
			break
		}
	}
	var next time.Time
	if len(m.jobs) > 0 {
		next = m.jobs[0].due
	}
	for _, c := range m.consumers() {
		next = earlier(next, c.nextAlarm())
	}
	if !next.IsZero() {
		m.timer.Reset(time.Until(next))
	}
}

// earlier is the earlier of two times, where zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// consumers is all consumers in the order of their names, so that equal seeds
// do things in the same order.
func (m *Model) consumers() []*Consumer {
	var all []*Consumer
	for _, s := range m.streams {
		for _, c := range s.consumers {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *Consumer) int { return a.created - b.created })
	return all
}

// job is something to do at a time.
type job struct {
	due time.Time
	seq int
	run func()
}

// jobs is a heap by time, and by order of arrival where that is equal.
type jobs []job

func (j jobs) Len() int { return len(j) }
func (j jobs) Less(a, b int) bool {
	if j[a].due.Equal(j[b].due) {
		return j[a].seq < j[b].seq
	}
	return j[a].due.Before(j[b].due)
}
func (j jobs) Swap(a, b int) { j[a], j[b] = j[b], j[a] }

// Push is for container/heap.
func (j *jobs) Push(x any) { *j = append(*j, x.(job)) }

// Pop is for container/heap.
func (j *jobs) Pop() any {
	last := (*j)[len(*j)-1]
	*j = (*j)[:len(*j)-1]
	return last
}

// at plans a job. The model's mutex is held then and when it runs.
func (m *Model) at(due time.Time, run func()) {
	m.jobSeq++
	heap.Push(&m.jobs, job{due: due, seq: m.jobSeq, run: run})
}

// after plans a job a while from now.
func (m *Model) after(wait time.Duration, run func()) { m.at(time.Now().Add(wait), run) }

func (m *Model) runJobs(now time.Time) bool {
	ran := false
	for len(m.jobs) > 0 && !m.jobs[0].due.After(now) {
		heap.Pop(&m.jobs).(job).run()
		ran = true
	}
	return ran
}
