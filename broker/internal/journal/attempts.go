package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

func (c Config) attemptSubject(seq, consumer, number string) string {
	return c.Name + ".a." + seq + "." + consumer + "." + number
}

func (c Config) subjectOfAttempt(id domain.JobID, number int) string {
	return c.attemptSubject(strconv.FormatUint(id.Seq, 10), strconv.FormatUint(uint64(id.Consumer), 10), strconv.Itoa(number))
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
	_, err = s.attemptWrites.request(ctx, &nats.Msg{Subject: s.cfg.subjectOfAttempt(id, a.Number), Data: data})
	return err
}

// AttemptAt implements the records of jobs.
func (s *jobs) AttemptAt(ctx context.Context, id domain.JobID, number int) (domain.Attempt, error) {
	var a domain.Attempt
	raw, err := s.Last(ctx, s.attemptStream, s.cfg.subjectOfAttempt(id, number))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(raw.Data, &a); err != nil {
		return a, fmt.Errorf("attempt %d of job %s: %w", number, id, err)
	}
	return a, nil
}
