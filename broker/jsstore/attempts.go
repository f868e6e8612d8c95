package jsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker"
)

func (c Config) attemptSubject(seq, consumer, number string) string {
	return c.Name + ".a." + seq + "." + consumer + "." + number
}

func (c Config) subjectOfAttempt(id broker.JobID, number int) string {
	return c.attemptSubject(strconv.FormatUint(id.Seq, 10), strconv.FormatUint(uint64(id.Consumer), 10), strconv.Itoa(number))
}

// KeepAttempt implements broker.Attempts. As with a record, the message has to be on disk before it: another could be given
// its sequence. The attempt itself is not waited for: the server syncs it with what else it syncs by itself.
func (s *Store) KeepAttempt(ctx context.Context, id broker.JobID, a broker.Attempt) error {
	if err := s.messageWrites.durableAt(ctx, id.Seq); err != nil {
		return err
	}
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode attempt %d of job %s: %w", a.Number, id, err)
	}
	return s.attemptWrites.try(ctx, &nats.Msg{Subject: s.cfg.subjectOfAttempt(id, a.Number), Data: data})
}

// AttemptAt implements broker.Attempts.
func (s *Store) AttemptAt(ctx context.Context, id broker.JobID, number int) (broker.Attempt, error) {
	var a broker.Attempt
	raw, err := s.last(ctx, s.attemptStream, s.cfg.subjectOfAttempt(id, number))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(raw.Data, &a); err != nil {
		return a, fmt.Errorf("attempt %d of job %s: %w", number, id, err)
	}
	return a, nil
}

// Whole implements broker.JobLists.
func (s *Store) Whole(ctx context.Context, jobs []broker.Job) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	slots := make(chan struct{}, readers)
	for i, j := range jobs {
		if c, ok := s.ConsumerByNumber(j.ID.Consumer); !ok || c.Type != broker.Push {
			continue
		}
		if kept, whole, ok := s.index.lookup(j.ID); !ok || whole {
			if ok {
				jobs[i] = kept
			}
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := s.readRecord(ctx, j.ID)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			if kept, whole, ok := s.index.lookup(j.ID); ok && whole {
				jobs[i] = kept
			}
		})
	}
	wg.Wait()
	return failed
}

// attemptsForgetter returns what deletes the attempts at the jobs of a message. Where there are none at all, which one
// question tells, it does nothing.
func (s *Store) attemptsForgetter(ctx context.Context) (func(seq string) error, error) {
	info, err := s.attemptStream.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: state of stream %s: %w", broker.ErrUnavailable, s.cfg.attempts(), err)
	}
	if info.State.Msgs == 0 {
		return func(string) error { return nil }, nil
	}
	return func(seq string) error {
		if err := s.attemptStream.Purge(ctx, jetstream.WithPurgeSubject(s.cfg.attemptSubject(seq, "*", "*"))); err != nil {
			return fmt.Errorf("%w: delete the attempts of message %s: %w", broker.ErrUnavailable, seq, err)
		}
		return nil
	}, nil
}
