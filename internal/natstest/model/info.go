package model

import (
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/natstest"
)

// consumerInfo is the response to a request for a consumer's info.
type consumerInfo struct {
	Type string `json:"type"`
	jetstream.ConsumerInfo
}

func (m *Model) onConsumerInfo(_ *natstest.Peer, r natstest.Request) {
	m.do(func() {
		tokens := strings.Split(r.Subject, ".")
		c := m.find(tokens[len(tokens)-2], tokens[len(tokens)-1])
		switch {
		case m.down:
			m.peer.NoResponders(r.Reply, r.Subject)
		case c == nil:
			m.peer.ReplyError(r.Reply, 404, jetstream.JSErrCodeConsumerNotFound, "consumer not found")
		case c.leads():
			m.peer.ReplyJSON(r.Reply, c.info())
		}
		// Without a leader, there is no response.
	})
}

func (c *Consumer) info() consumerInfo {
	state := c.state()
	info := consumerInfo{Type: "io.nats.jetstream.api.v1.consumer_info_response"}
	info.Stream, info.Name, info.Created, info.Config = c.stream.name, c.name, c.born, c.cfg
	info.Delivered, info.AckFloor = state.Delivered, state.AckFloor
	info.NumPending, info.NumAckPending = state.NumPending, state.NumAckPending
	info.NumRedelivered, info.NumWaiting = state.NumRedelivered, state.NumWaiting
	info.TimeStamp = time.Now()
	if len(c.cfg.PriorityGroups) > 0 {
		info.PriorityGroups = []jetstream.PriorityGroupState{{
			Group:          c.cfg.PriorityGroups[0],
			PinnedClientID: c.pin.id,
			PinnedTS:       c.pin.since,
		}}
	}
	if c.paused() {
		info.Paused, info.PauseRemaining = true, time.Until(*c.cfg.PauseUntil)
	}
	return info
}

func sortedReplies(m map[string]bool) []string {
	replies := make([]string, 0, len(m))
	for reply := range m {
		replies = append(replies, reply)
	}
	slices.Sort(replies)
	return replies
}
