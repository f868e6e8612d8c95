package shards

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// askTime is how long the node that makes a consumer's callbacks is waited for. There may be none for a moment.
const askTime = 500 * time.Millisecond

// AskBreaker asks the node that makes the callbacks of a consumer for the state of its circuit breaker; empty: it has
// none, or no node has answered.
func (s *Part) AskBreaker(ctx context.Context, consumer uint32) domain.BreakerState {
	if !s.Shared {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answer, err := s.JS.Conn().RequestWithContext(ctx, s.BreakerSubject, []byte(strconv.FormatUint(uint64(consumer), 10)))
	if err != nil {
		s.Log.Debug("no node tells the state of a circuit breaker", "consumer", consumer, "error", err)
		return ""
	}
	return domain.BreakerState(answer.Data)
}

// answerBreaker answers other nodes for the consumers whose callbacks are made here.
func (s *Part) answerBreaker(breaker func(consumer uint32) (domain.BreakerState, bool)) (stop func()) {
	sub, err := s.JS.Conn().Subscribe(s.BreakerSubject, func(msg *nats.Msg) {
		consumer, err := strconv.ParseUint(string(msg.Data), 10, 32)
		if err != nil {
			return
		}
		if state, here := breaker(uint32(consumer)); here {
			err = msg.Respond([]byte(state))
			s.Log.Debug("told the state of a circuit breaker", "consumer", consumer, "error", err)
		}
	})
	if err != nil {
		s.Log.Info("other nodes do not show the circuit breakers of this one", "error", err)
		return func() {}
	}
	return func() { _ = sub.Unsubscribe() }
}
