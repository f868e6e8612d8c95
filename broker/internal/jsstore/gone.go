package jsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/streams"
)

// notice tells the other nodes what was deleted, which those that follow the
// streams do not see. One that gets lost leaves an entry in a list of another
// node until that comes to it, or starts: whatever is done with an entry begins with
// reading the message or its record, and what is gone then is forgotten here too.
type notice struct {
	Token string // of the channel
	Seqs  []uint64
}

func (s *base) noticeSubject() string { return s.cfg.Name + ".x.deleted" }

// tell takes a notice in here and sends it to the other nodes.
func (s *messages) tell(n notice) {
	s.take(n)
	if !s.cfg.Shared {
		return
	}
	b, err := json.Marshal(n)
	if err == nil {
		err = s.nc.Publish(s.noticeSubject(), b)
	}
	if err != nil {
		s.log.Info("other nodes list what was deleted until they start again", "error", err)
	}
}

func (s *messages) take(n notice) {
	s.index.RemoveMessages(n.Token, n.Seqs)
	for _, seq := range n.Seqs {
		s.cache.remove(seq)
	}
}

// listen takes in the notices of other nodes until run ends.
func (s *messages) listen(run context.Context) error {
	if !s.cfg.Shared {
		return nil
	}
	sub, err := s.nc.Subscribe(s.noticeSubject(), func(msg *nats.Msg) {
		var n notice
		if err := json.Unmarshal(msg.Data, &n); err != nil || len(n.Seqs) == 0 {
			s.log.Warn("notice that cannot be read ignored", "error", err)
			return
		}
		// The news of a message may come after that of its end, or never. Then it is listed until somebody asks for it.
		wait, cancel := context.WithTimeout(run, catchUp)
		_ = s.messagesSeen.Wait(wait, slices.Max(n.Seqs))
		cancel()
		s.take(n)
	})
	if err != nil {
		return fmt.Errorf("listen to other nodes: %w", err)
	}
	context.AfterFunc(run, func() {
		if err := sub.Unsubscribe(); err != nil {
			s.log.Debug("end of listening to other nodes", "error", err)
		}
	})
	return nil
}

// inUse keeps the pruner and those who queue a settled job again apart, in this process, without a lock over I/O: the pruner
// passes over a message whose job is being queued again, and a job whose message is being deleted waits for the outcome.
type inUse struct {
	mu       sync.Mutex
	reviving map[uint64]int           // jobs that are being queued again, by sequence
	deleting map[uint64]chan struct{} // closed when the delete has ended, by sequence
}

// delete begins the delete of a message; ok is false while one of its jobs is queued again.
func (u *inUse) delete(seq uint64) (done func(), ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.reviving[seq] > 0 || u.deleting[seq] != nil {
		return nil, false
	}
	if u.deleting == nil {
		u.deleting = map[uint64]chan struct{}{}
	}
	ended := make(chan struct{})
	u.deleting[seq] = ended
	return func() {
		u.mu.Lock()
		delete(u.deleting, seq)
		u.mu.Unlock()
		close(ended)
	}, true
}

// revive keeps a message from being deleted until done is called. It waits for a delete that has begun.
func (u *inUse) revive(ctx context.Context, seq uint64) (done func(), err error) {
	for {
		u.mu.Lock()
		ended := u.deleting[seq]
		if ended == nil {
			if u.reviving == nil {
				u.reviving = map[uint64]int{}
			}
			u.reviving[seq]++
		}
		u.mu.Unlock()
		if ended == nil {
			return func() { u.revived(seq) }, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (u *inUse) revived(seq uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.reviving[seq]--; u.reviving[seq] == 0 {
		delete(u.reviving, seq)
	}
}

// revive is called before a settled job is queued again, and the function that it returns after that. In between its
// message is not pruned here.
func (s *messages) revive(ctx context.Context, id domain.JobID) (done func(), err error) {
	done, err = s.inUse.revive(ctx, id.Seq)
	if err != nil {
		return nil, fmt.Errorf("%w: job %s: its message is being pruned: %w", domain.ErrUnavailable, id, err)
	}
	if _, err = s.At(ctx, s.messageStream, id.Seq); err != nil {
		done()
		return nil, fmt.Errorf("job %s: %w", id, err)
	}
	return done, nil
}

// vanished forgets messages of which the store has said that they are gone. The notice of another node may not have come yet; or
// it was lost in an outage, together with the records that were deleted with the messages.
func (s *messages) vanished(ctx context.Context, seqs []uint64) error {
	gone := map[uint64]string{}
	for _, seq := range seqs {
		if token, _ := s.index.ChannelOf(seq); token != "" {
			gone[seq] = token
		}
	}
	if len(gone) > 0 {
		s.awaitNews(ctx, gone)
	}
	return s.forget(ctx, gone)
}

// recordVanished forgets the message of a job whose record is gone: records are deleted after their message only.
func (s *messages) recordVanished(ctx context.Context, id domain.JobID) error {
	consumer, ok := s.reg.numbered(id.Consumer)
	if !ok {
		return nil // with the consumer
	}
	return s.forgetStrays(ctx, map[uint64]string{id.Seq: streams.EncodeToken(consumer.Channel)})
}

// forgetStrays deletes the records of messages of which the index knows nothing, or no record, if the store says that they are
// gone: the news may come from a replica that is behind.
func (s *messages) forgetStrays(ctx context.Context, strays map[uint64]string) error {
	var mu sync.Mutex
	gone := map[uint64]string{}
	err := atOnce(slices.Collect(maps.Keys(strays)), func(seq uint64) error {
		_, err := s.At(ctx, s.messageStream, seq)
		if errors.Is(err, domain.ErrNotFound) {
			mu.Lock()
			defer mu.Unlock()
			gone[seq] = strays[seq]
			return nil
		}
		return err
	})
	return errors.Join(err, s.forget(ctx, gone))
}
