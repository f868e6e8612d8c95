package pull

import (
	"math/rand/v2"
	"slices"

	"github.com/jetpull/jetpull/internal/wire"
)

// share is a share group: the demands with equal terms, which share pulls and their messages.
type share struct {
	terms Terms
	// unshared is set for a demand with MaxBytes, or over a limit of the consumer. It shares its pulls with no other.
	unshared bool

	demands []*Demand // in the order in which they were posted
	pulls   []*pull   // open
	stash   []stashed // ack policy none: late messages in stream order, for the next demand
	retryAt At        // no pull before this
	tries   int       // failures in a row
	// claimed is set if the server ended a one-shot at once without messages, because pulls of other clients wait for all
	// pending messages. Then long pulls are sent, which are served in their turn. It is reset by a message, or when no demand is left.
	claimed bool
}

// stashed is a message that no demand waits for, and that cannot be handed back.
type stashed struct {
	msg  Message
	size int
}

// used reports whether s still has demands, pulls or messages.
func (s *share) used() bool { return len(s.demands) > 0 || len(s.pulls) > 0 || len(s.stash) > 0 }

// next returns the demand that gets the next message: the first call that waits, or else owner, the standing
// demand that asked for it, or else the first standing demand.
func (s *share) next(owner *Demand) *Demand {
	var standing *Demand
	for _, d := range s.demands {
		switch {
		case d.Mode != Standing:
			if d.wants() {
				return d
			}
		case standing == nil || d == owner:
			standing = d
		}
	}
	return standing
}

// reconnected ends all back-offs, so that pulls go out at once.
func (s *share) reconnected() {
	s.retryAt, s.tries = 0, 0
	for _, d := range s.demands {
		if d.Mode == Standing {
			d.stand.silentProbes, d.stand.retryAt = 0, 0
		}
	}
}

// pullEnded updates s when its pull p has ended, and reports whether the consumer may have changed or be gone.
func (s *share) pullEnded(now At, p *pull, o *ending, limits *Limits, rng *rand.Rand) (doubt bool) {
	st := o.status
	class := st.Condition.Class()
	switch {
	case o.silent:
		return false
	case class == wire.Retry, class == wire.Terminal:
		doubt = st.Condition == wire.NoResponders || st.Condition == wire.ConsumerDeleted
	case class == wire.Pin && p.req.ID != "":
		return false
	case class == wire.Empty && p.kind == oneShot && p.got == 0 && now < p.sent+p.req.Expires/2:
		s.claimed = true
		return false
	case st.Condition == wire.LimitExceeded:
		doubt = true // the limit was lowered, unless the call asked for more
	case p.endedEarly(now, st):
	case st.Condition == wire.Expired && p.got == 0 && limits.Expires > 0 && limits.Expires < LeastLife:
		s.retryAt = max(s.retryAt, p.sent+LeastLife)
		return false
	default:
		return false
	}
	s.retryAt = now + backOff(s.tries, lastBackOff, rng)
	s.tries++
	return doubt
}

// without returns list without x.
func without[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(list, func(y T) bool { return y == x })
}
