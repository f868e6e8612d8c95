package model_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/natstest/model"
)

var (
	randomScripts = flag.Int("random-scripts", 60, "how many random scripts the model and the server are compared by")
	randomSeed    = flag.Uint64("random-seed", 1, "seed of the first random script")
)

// randomScript makes up what clients do, seeing what has come to them. Nothing
// in it depends on time, so that a slow server does the same.
func randomScript(seed uint64, length int) script {
	rng := rand.New(rand.NewPCG(seed, 7))
	cfg := explicit()
	group := ""
	switch rng.IntN(8) {
	case 0:
		cfg.AckPolicy = jetstream.AckAllPolicy
	case 1:
		cfg.AckPolicy = jetstream.AckNonePolicy
	case 2:
		cfg.PriorityPolicy = jetstream.PriorityPolicyPinned
	case 3:
		cfg.PriorityPolicy = jetstream.PriorityPolicyOverflow
	case 4:
		cfg.PriorityPolicy = jetstream.PriorityPolicyPrioritized
	}
	if cfg.PriorityPolicy != jetstream.PriorityPolicyNone {
		cfg.PriorityGroups = []string{"g"}
		group = `,"group":"g"`
	}
	if rng.IntN(3) == 0 && cfg.AckPolicy != jetstream.AckNonePolicy {
		cfg.MaxAckPending = 1 + rng.IntN(6)
	}
	if rng.IntN(3) == 0 {
		cfg.MaxDeliver = 1 + rng.IntN(3)
	}
	if rng.IntN(3) == 0 {
		cfg.MaxWaiting = 1 + rng.IntN(4)
	}
	d := &drawn{rng: rng, group: group, policy: cfg.PriorityPolicy, left: length}
	return script{name: fmt.Sprintf("seed %d", seed), cfg: cfg, draw: d.next}
}

// drawn draws steps.
type drawn struct {
	rng    *rand.Rand
	group  string
	policy jetstream.PriorityPolicy
	left   int
	subbed map[string]bool
}

func (d *drawn) next(s *side) []step {
	if d.subbed == nil {
		d.subbed = map[string]bool{"a": true, "b": true}
		return list(sub("a"), sub("b"))
	}
	if d.left--; d.left < 0 {
		return nil
	}
	box := []string{"a", "b"}[d.rng.IntN(2)]
	n := d.rng.IntN(20)
	// A pull to an inbox that nobody listens to leaves no trace by which one
	// could see when the server has taken it.
	if !d.subbed[box] && n >= 6 && n < 18 {
		d.subbed[box] = true
		return sub(box)
	}
	switch {
	case n < 6:
		return pubOf(1, d.rng.IntN(200))
	case n < 12:
		return pull(box, d.pull())
	case n < 18:
		if acked := len(s.inboxes[box].data); acked > 0 {
			return d.ack(s, box, acked)
		}
	case n < 19 && d.left > 0:
		if d.subbed[box] = !d.subbed[box]; d.subbed[box] {
			return sub(box)
		}
		return unsub(box)
	case d.policy == jetstream.PriorityPolicyPinned:
		return unpin("g")
	}
	return pub(1)
}

func (d *drawn) pull() string {
	body := fmt.Sprintf(`{"batch":%d`, 1+d.rng.IntN(5)) + d.group
	if d.rng.IntN(2) == 0 {
		body += `,"no_wait":true`
	}
	if d.rng.IntN(2) == 0 {
		body += `,"expires":600000000000`
		if d.rng.IntN(3) == 0 {
			body += `,"idle_heartbeat":300000000000`
		}
	}
	if d.rng.IntN(4) == 0 {
		body += fmt.Sprintf(`,"max_bytes":%d`, 50+d.rng.IntN(600))
	}
	switch {
	case d.policy == jetstream.PriorityPolicyPinned && d.rng.IntN(2) == 0:
		body += `,"id":"PIN"`
	case d.policy == jetstream.PriorityPolicyOverflow && d.rng.IntN(2) == 0:
		body += fmt.Sprintf(`,"min_pending":%d,"min_ack_pending":%d`, d.rng.IntN(4), d.rng.IntN(4))
	case d.policy == jetstream.PriorityPolicyPrioritized:
		body += fmt.Sprintf(`,"priority":%d`, d.rng.IntN(3))
	}
	return body + "}"
}

func (d *drawn) ack(s *side, box string, n int) []step {
	i := d.rng.IntN(n)
	// Whenever the server is signaled, it takes the first message of its queue for redelivery, and puts it behind the others if no waiting pull may have
	// it. Signals that come together are one, so the order of two messages in the queue is a matter of time.
	skips := d.policy == jetstream.PriorityPolicyPinned || d.policy == jetstream.PriorityPolicyOverflow
	switch verb := d.rng.IntN(6); {
	case verb == 0 && (!skips || s.queued() == 0):
		return ack(box, i, "-NAK")
	case verb == 1:
		return ack(box, i, "+TERM")
	case verb == 2:
		return confirm(box, i, "+WPI")
	case verb == 3:
		return confirm(box, i, "+ACK")
	}
	return ack(box, i, "+ACK")
}

func TestModelAgreesWithTheServerOnRandomScripts(t *testing.T) {
	var scripts []script
	for i := range *randomScripts {
		scripts = append(scripts, randomScript(*randomSeed+uint64(i), 40))
	}
	runAll(t, oneServer, scripts, model.Config{}, inOrder)
}
