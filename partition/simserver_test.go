package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/lease"
	"github.com/jetpull/jetpull/internal/stored"
)

// world is a model of a server with the bucket and the consumers of a set, and the history of the handlers. Members run the real code on
// it, in virtual time.
type world struct {
	rng      *rand.Rand
	plant    plant
	start    time.Time
	resets   bool // the server can reset consumers
	mu       sync.Mutex
	revision uint64
	keys     map[string]*jetstream.RawStreamMsg
	before   []byte // the record of the set before the last write
	ears     map[*process]func(key string, value []byte)
	parts    []*simPart
	next     map[string]int // by key: the number of the message that may begin next
	busy     map[string]int // by key: handlers that run in processes that are alive and awake
	done     int
	faults   []string

	reliable bool                               // no answer and no hint is lost
	fail     func(p *process, key string) error // nil, or makes some writes fail

	history []string
}

// note adds a line to the history. The world is locked.
func (w *world) note(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf("%v ", time.Since(w.start))+fmt.Sprintf(format, args...))
}

func (w *world) fault(format string, args ...any) {
	w.note("FAULT "+format, args...)
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// process is a process in which a member runs. If it is cut, its network does not answer. If it is dead, it does nothing any more. If it sleeps,
// it does nothing until it wakes, and its monotonic clock stands still.
type process struct {
	*world
	name    string
	cut     chan struct{} // nil: connected; closed when it is connected again
	breaks  uint64        // of its connection
	dead    bool
	asleep  *lease.Moment // its time, while it sleeps
	slept   time.Duration
	own     map[string]int // its part of busy
	working map[int]int    // handlers by partition
	naps    int
}

var errSim = errors.New("no answer")

// clock is the clock of the process. A real process runs no code while it sleeps, so code that runs here sees the time at which it fell asleep.
func (p *process) clock() lease.Moment {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asleep != nil {
		return *p.asleep
	}
	now := time.Since(p.start)
	m := lease.Moment{Mono: now - p.slept, Wall: now}
	if p.plant == sleepsLease {
		m.Wall = m.Mono
	}
	return m
}

// call is one request. It takes a while, and the request or its answer may be lost.
func (p *process) call(ctx context.Context, do func() error) error {
	p.mu.Lock()
	delay := time.Duration(p.rng.Int64N(int64(3*time.Millisecond) + 1))
	p.mu.Unlock()
	if err := sleep(ctx, delay); err != nil {
		return err
	}
	for {
		p.mu.Lock()
		cut := p.cut
		if p.dead {
			p.mu.Unlock()
			<-ctx.Done()
			return ctx.Err()
		}
		if cut == nil {
			err := do()
			lost := p.rng.IntN(100) == 0 && !p.reliable
			p.mu.Unlock()
			if lost {
				return errSim
			}
			return err
		}
		p.mu.Unlock()
		select {
		case <-cut:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// record is the record of the set. The world is locked.
func (w *world) record() *record {
	r := &record{}
	_ = json.Unmarshal(w.keys[recordKey].Data, r)
	return r
}

// leaves returns a member of the record that leaves.
var leaves = regexp.MustCompile(`(\.\w+"):true`)

// tell reports most writes to members, even refused ones, each some time after it was sent. The world is locked.
func (w *world) tell(key string, value []byte) {
	for p, f := range w.ears {
		if w.rng.IntN(20) == 0 && !w.reliable {
			continue
		}
		time.AfterFunc(time.Duration(w.rng.Int64N(int64(5*time.Millisecond))), func() {
			w.mu.Lock()
			deaf := p.cut != nil || p.dead
			w.mu.Unlock()
			if !deaf {
				f(key, value)
			}
		})
	}
}

func (p *process) read(ctx context.Context, key string) (*jetstream.RawStreamMsg, error) {
	m := jetstream.RawStreamMsg{}
	err := p.call(ctx, func() error {
		if have := p.keys[key]; have != nil {
			m = *have
		}
		if p.plant == staleView && key == recordKey && p.before != nil && p.rng.IntN(2) == 0 {
			m.Data = p.before
		}
		return nil
	})
	return &m, err
}

func (p *process) current(context.Context) error { return nil }

func (p *process) write(ctx context.Context, key string, v any, revision uint64) error {
	value, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return p.call(ctx, func() error {
		p.tell(key, value)
		if p.fail != nil {
			if err := p.fail(p, key); err != nil {
				return err
			}
		}
		var have jetstream.RawStreamMsg
		if last := p.keys[key]; last != nil {
			have = *last
		}
		if revision != anyRevision && have.Sequence != revision && (p.plant != staleView || key != recordKey) {
			return stored.ErrConflict
		}
		if p.plant == leaveWaits {
			value = leaves.ReplaceAll(value, []byte("$1:false"))
		}
		if key == recordKey {
			p.before = have.Data
		}
		p.revision++
		p.keys[key] = &jetstream.RawStreamMsg{Data: value, Sequence: p.revision}
		p.note("%s writes %s: %s", p.name, key, value)
		return nil
	})
}
