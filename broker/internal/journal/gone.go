package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
)

// notice announces deletions to the other nodes, because they do not see deletions when they follow a stream. If a notice is lost, another node keeps
// an entry in a list until it uses the entry or restarts. Each use of an entry begins with reading the message or its record; if that is deleted, the
// node removes the entry. Any client of the account can send a notice, so a node believes it only for messages that are no longer in the stream.
type notice struct {
	Token string // of the channel
	Seqs  []uint64
}

func (s *base) noticeSubject() string { return s.cfg.Name + ".x.deleted" }

// announce applies a notice on this node and sends it to the other nodes.
func (s *messages) announce(n notice) {
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
	s.Index.RemoveMessages(n.Token, n.Seqs)
	for _, seq := range n.Seqs {
		s.cache.remove(seq)
	}
}

// listen applies the notices of other nodes until run ends.
func (s *messages) listen(run context.Context) error {
	if !s.cfg.Shared {
		return nil
	}
	sub, err := s.nc.Subscribe(s.noticeSubject(), func(msg *nats.Msg) {
		var n notice
		if err := json.Unmarshal(msg.Data, &n); err != nil || len(n.Seqs) == 0 {
			s.log.Debug("notice that cannot be read ignored", "error", err)
			return
		}
		s.hear(run, n)
	})
	if err != nil {
		return fmt.Errorf("listen to other nodes: %w", err)
	}
	context.AfterFunc(run, func() { _ = sub.Unsubscribe() })
	return nil
}

// hear applies a notice from another node.
func (s *messages) hear(ctx context.Context, n notice) {
	ctx, cancel := context.WithTimeout(ctx, jsstream.CommitTimeout)
	defer cancel()
	if slices.Max(n.Seqs) > s.messagesSeen.Reached() {
		// A message that is read after the notice of its deletion would stay listed until it is used.
		f := s.messageFeed
		if _, err := f.UpToNow(ctx); err != nil {
			s.log.Debug("no news of deleted messages", "error", err)
		}
	}
	listed := s.Index.Listed(n.Token, n.Seqs)
	gone, err := s.reader.Gone(ctx, s.cfg.messages(), listed)
	if len(gone) < len(listed) {
		s.log.Debug("a notice says that messages are deleted which may be stored", "messages", len(listed), "deleted", len(gone), "error", err)
	}
	s.take(notice{Token: n.Token, Seqs: gone})
}

// inUse makes the pruning of a message and the queueing of its settled jobs exclude each other, within this process and without holding a lock during
// I/O. The second of the two is refused.
type inUse struct {
	mu   sync.Mutex
	uses map[uint64]int // by the message's sequence: how many of its jobs are being queued again, or deleting
}

const deleting = -1

// begin registers a use of a message if it is compatible with the current uses. Deletion excludes all other uses. Queueing is compatible with itself.
func (u *inUse) begin(seq uint64, use int) (end func(), ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := u.uses[seq]; now == deleting || now > 0 && use == deleting {
		return nil, false
	}
	if u.uses == nil {
		u.uses = map[uint64]int{}
	}
	u.uses[seq] += use
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.uses[seq] -= use; u.uses[seq] == 0 {
			delete(u.uses, seq)
		}
	}, true
}

// revive must be called before a settled job is queued again, and done afterwards. Between the two calls, this node does not prune the job's message.
func (s *messages) revive(ctx context.Context, id domain.JobID) (done func(), err error) {
	done, ok := s.inUse.begin(id.Seq, 1)
	if !ok {
		return nil, fmt.Errorf("%w: job %s: its message is being pruned", domain.ErrUnavailable, id)
	}
	if _, err = s.reader.At(ctx, s.messageStream, id.Seq); err != nil {
		done()
		return nil, fmt.Errorf("job %s: %w", id, err)
	}
	return done, nil
}

func (s *messages) CountPending(ctx context.Context, channel string) (int, error) {
	_, err := s.upToNow(ctx) // a schedule of another node must be read first to be counted
	return s.Index.CountScheduled(channel).Pending, err
}

// forgetPage is the maximum number of messages in one notice.
const forgetPage = 1000

func (s *messages) ForgetChannel(ctx context.Context, channel string) error {
	ctx, cancel := context.WithTimeout(ctx, jsstream.CommitTimeout)
	defer cancel()
	if _, err := s.upToNow(ctx); err != nil { // an entry that is read later would stay listed
		return err
	}
	token := domain.SubjectToken(channel)
	if err := s.messageStream.Purge(ctx, jetstream.WithPurgeSubject(s.cfg.eitherSubject(token, "*"))); err != nil {
		return fmt.Errorf("%w: delete the messages of channel %s: %w", domain.ErrUnavailable, channel, err)
	}
	for page := (domain.Page{Limit: forgetPage}); ; {
		seqs := append(s.Index.MessageSeqs(channel, page), s.Index.ScheduledSeqs(channel, 0, page)...)
		if len(seqs) == 0 {
			return s.messageWrites.DurableAt(ctx, 0)
		}
		s.announce(notice{Token: token, Seqs: seqs})
	}
}
