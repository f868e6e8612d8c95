package jsstore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
)

// notice tells the other nodes what was deleted, which those that follow the
// streams do not see. One that gets lost leaves an entry in a list of another
// node until that comes to it, or starts: whatever is done with an entry begins with
// reading the message or its record, and what is gone then is forgotten here too.
type notice struct {
	Token string // of the channel
	Seqs  []uint64
	// Cancelled is the subject of a schedule, if it is one that was deleted.
	Cancelled string `json:",omitempty"`
}

func (s *messages) noticeSubject() string { return s.cfg.Name + ".x.deleted" }

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
	if n.Cancelled != "" {
		for _, seq := range n.Seqs {
			s.schedules.Remove(n.Token, n.Cancelled, seq, s.messagesSeen.Reached())
		}
		return
	}
	s.schedules.Pruned(n.Token, n.Seqs)
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
		if err := json.Unmarshal(msg.Data, &n); err != nil {
			s.log.Warn("notice that cannot be read ignored", "error", err)
			return
		}
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
