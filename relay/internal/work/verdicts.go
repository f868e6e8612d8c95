package work

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/relay/internal/machine"
)

// Outcome is what became of a message that a sender handed in.
type Outcome string

// The outcomes.
const (
	Accepted  Outcome = "accepted"
	Duplicate Outcome = "duplicate"
	Conflict  Outcome = "conflict"
)

// verdictWait is how long a request waits for the worker of its partition. Longer than that it is being taken over.
const verdictWait = 3 * time.Second

// Verdict is what became of a message, and its status.
type Verdict struct {
	Outcome Outcome        `json:"outcome"`
	Status  machine.Status `json:"status"`
}

// verdicts brings what a FromSender worker decided to the request that waits for it, in this process or another.
type verdicts struct {
	nc   *nats.Conn
	node string
	sub  *nats.Subscription

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan Verdict
}

type said struct {
	Ticket uint64 `json:"ticket"`
	Verdict
}

func newVerdicts(nc *nats.Conn, node string) (*verdicts, error) {
	v := &verdicts{nc: nc, node: node, waiting: map[uint64]chan Verdict{}}
	var err error
	v.sub, err = nc.Subscribe(verdictSubject(node), func(m *nats.Msg) {
		var s said
		if json.Unmarshal(m.Data, &s) == nil {
			v.arrived(s.Ticket, s.Verdict)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to verdicts: %w", err)
	}
	return v, nil
}

func verdictSubject(node string) string { return "_INBOX.relay." + node }

func (v *verdicts) expect() (ticket uint64, wait <-chan Verdict, give func()) {
	c := make(chan Verdict, 1)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last++
	ticket = v.last
	v.waiting[ticket] = c
	return ticket, c, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.waiting, ticket)
	}
}

func (v *verdicts) arrived(ticket uint64, verdict Verdict) {
	v.mu.Lock()
	c := v.waiting[ticket]
	delete(v.waiting, ticket)
	v.mu.Unlock()
	if c != nil {
		c <- verdict
	}
}

// say is best effort: who is not reached reads the record after a while.
func (v *verdicts) say(node string, ticket uint64, verdict Verdict) {
	if node == v.node {
		v.arrived(ticket, verdict)
		return
	}
	if node == "" {
		return
	}
	if data, err := json.Marshal(said{ticket, verdict}); err == nil {
		_ = v.nc.Publish(verdictSubject(node), data)
	}
}

func (v *verdicts) close() { _ = v.sub.Unsubscribe() }
