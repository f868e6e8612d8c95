package journal

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// attemptSubject takes numbers, or wildcards.
func (c Config) attemptSubject(seq, consumer, number any) string {
	return fmt.Sprintf("%s.a.%v.%v.%v", c.Name, seq, consumer, number)
}

// KeepAttempt waits for the message's sync, because another message could get its sequence. It does not wait for the attempt's
// own.
func (s *jobs) KeepAttempt(ctx context.Context, id domain.JobID, a domain.Attempt) error {
	if err := s.messageWrites.DurableAt(ctx, id.Seq); err != nil {
		return err
	}
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode attempt %d of job %s: %w", a.Number, id, err)
	}
	_, err = s.attemptWrites.send(ctx, &nats.Msg{Subject: s.cfg.attemptSubject(id.Seq, id.Consumer, a.Number), Data: data})
	return err
}

// AttemptAt implements the records of jobs. A record that cannot be decoded is an attempt whose error says so, so that the others are shown.
func (s *jobs) AttemptAt(ctx context.Context, id domain.JobID, number int) (domain.Attempt, error) {
	var a domain.Attempt
	raw, err := s.Last(ctx, s.attemptStream, s.cfg.attemptSubject(id.Seq, id.Consumer, number))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(raw.Data, &a); err != nil {
		return domain.Attempt{Number: number, Error: fmt.Sprintf("the record of this attempt cannot be decoded: %v", err)}, nil
	}
	return a, nil
}
