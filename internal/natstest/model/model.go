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

// Delay is a random duration, uniformly distributed from Min to Max. The zero value means no delay.
type Delay struct{ Min, Max time.Duration }

// Config configures a model. The zero value is one server that responds at once and loses nothing.
type Config struct {
	// Seed determines all random values. Equal seeds produce the same values, as long as the
	// client does the same in the same order.
	Seed uint64
	// Replicas is the number of replicas of all streams and consumers, 1 or 3; 0 means 1.
	Replicas int
	// Quorum is the time until replicas agree on a change. It is used only
	// with three replicas.
	Quorum Delay
	// Outage is how long a replicated consumer has no leader during a change.
	Outage Delay
	// Wake is the time until a consumer notices that there is work. Several
	// requests may arrive in that time.
	Wake Delay
	// Up and Down are the latencies of each operation of a client, and of each
	// frame to it. Order is kept.
	Up, Down Delay
	// Lose is the share of a consumer's frames, from 0 to 1, that are lost after
	// the server sent them.
	Lose float64
	// Remote specifies that clients are connected to another server than that of
	// the consumers, so that its end does not disconnect them.
	Remote bool
}

// Model is a server with streams and consumers. Its methods may be called by all goroutines of its bubble.
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

// Lose sets the share of a consumer's frames that are lost from now on.
func (m *Model) Lose(share float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cfg.Lose = share
}

// Peer returns the scripted peer of the model, for faults of the connection.
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

// latency returns the latencies of a connection. Each direction has its own random source, so that neither depends on the other.
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

// do changes the model, and runs everything that is then due.
func (m *Model) do(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	change()
	m.settle()
}

// tick is called when something is due.
func (m *Model) tick() { m.do(func() {}) }

// settle runs everything that is due now, and sets the timer for the next time.
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

// earlier returns the earlier of two times. Zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// consumers returns all consumers in the order of their creation, so that equal seeds have equal runs.
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

// job is a function to run at a time.
type job struct {
	due time.Time
	seq int
	run func()
}

// jobs is a heap, ordered by time and then by arrival.
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

// at schedules a job. The model's mutex must be held, and is held when the job runs.
func (m *Model) at(due time.Time, run func()) {
	m.jobSeq++
	heap.Push(&m.jobs, job{due: due, seq: m.jobSeq, run: run})
}

// after schedules a job after a duration.
func (m *Model) after(wait time.Duration, run func()) { m.at(time.Now().Add(wait), run) }

func (m *Model) runJobs(now time.Time) bool {
	ran := false
	for len(m.jobs) > 0 && !m.jobs[0].due.After(now) {
		heap.Pop(&m.jobs).(job).run()
		ran = true
	}
	return ran
}
