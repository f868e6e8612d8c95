package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/view"
)

// sentences describe a configuration.
type sentences []string

// add adds a sentence where it holds.
func (s *sentences) add(holds bool, format string, args ...any) {
	if holds {
		*s = append(*s, fmt.Sprintf(format, args...))
	}
}

// describe is the configuration of a consumer in sentences.
func describe(c *jetstream.ConsumerInfo) (all sentences) {
	cfg := c.Config
	subjects, pulls := filters(&cfg), cfg.DeliverSubject == ""
	all.add(cfg.Description != "", "Description: %s", cfg.Description)
	all.add(true, "%s", delivers(&cfg))
	all.add(len(subjects) > 0, "It delivers messages with these subjects only: %s.", strings.Join(subjects, ", "))
	acknowledges(&all, &cfg)
	all.add(!pulls, "The server pushes messages to the subject %s.", cfg.DeliverSubject)
	all.add(pulls, "Clients pull. At most %s wait at a time.", view.Count(uint64(max(0, cfg.MaxWaiting)), "pull request"))
	all.add(cfg.MaxRequestBatch > 0, "A pull request may ask for at most %s.", view.Count(uint64(max(0, cfg.MaxRequestBatch)), "message"))
	all.add(cfg.MaxRequestExpires > 0, "A pull request may wait for at most %s.", view.Span(cfg.MaxRequestExpires))
	all.add(cfg.MaxRequestMaxBytes > 0, "A pull request may ask for at most %s.", view.Bytes(uint64(max(0, cfg.MaxRequestMaxBytes))).Text)
	all.add(cfg.RateLimit > 0, "It delivers at most %d bits in a second.", cfg.RateLimit)
	all.add(cfg.HeadersOnly, "It delivers headers without payloads.")
	all.add(len(cfg.PriorityGroups) > 0, "Clients pull in the groups %s. The policy is %s.", strings.Join(cfg.PriorityGroups, ", "),
		policyName(cfg.PriorityPolicy))
	keeps(&all, c)
	for _, key := range slices.Sorted(maps.Keys(cfg.Metadata)) {
		all.add(!strings.HasPrefix(key, "_nats."), "Metadata %s: %s", key, cfg.Metadata[key])
	}
	return all
}

func delivers(cfg *jetstream.ConsumerConfig) string {
	switch cfg.DeliverPolicy {
	case jetstream.DeliverLastPolicy:
		return "It begins with the last message that the stream had when the consumer was created."
	case jetstream.DeliverNewPolicy:
		return "It delivers messages that were stored after the consumer was created."
	case jetstream.DeliverByStartSequencePolicy:
		return fmt.Sprintf("It begins at sequence %d.", cfg.OptStartSeq)
	case jetstream.DeliverByStartTimePolicy:
		if cfg.OptStartTime != nil {
			return "It begins with the first message that was stored after this time: " + view.At(*cfg.OptStartTime) + "."
		}
		return "It begins at a time that the server did not state."
	case jetstream.DeliverLastPerSubjectPolicy:
		return "It begins with the last message of each subject."
	}
	return "It delivers all messages of the stream, from the first on."
}

func filters(cfg *jetstream.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return []string{cfg.FilterSubject}
	}
	return cfg.FilterSubjects
}

func acknowledges(all *sentences, cfg *jetstream.ConsumerConfig) {
	if cfg.AckPolicy == jetstream.AckNonePolicy {
		all.add(true, "Messages count as acknowledged when they are delivered. Nothing is redelivered.")
		return
	}
	covers := cfg.AckPolicy == jetstream.AckAllPolicy
	all.add(covers, "An acknowledgement covers all messages before it. A message that is not acknowledged within %s is redelivered.",
		view.Span(cfg.AckWait))
	all.add(!covers, "Each message must be acknowledged within %s, or it is redelivered.", view.Span(cfg.AckWait))
	waits := make([]string, len(cfg.BackOff))
	for i, d := range cfg.BackOff {
		waits[i] = view.Span(d)
	}
	all.add(len(waits) > 0, "Redeliveries wait for %s; the last of these holds for all later ones.", strings.Join(waits, ", "))
	all.add(cfg.MaxDeliver > 0, "A message is delivered at most %s. After that it stays in the stream and is not delivered again.",
		view.Count(uint64(max(0, cfg.MaxDeliver)), "time"))
	all.add(cfg.MaxDeliver <= 0, "A message is redelivered without limit.")
	all.add(cfg.MaxAckPending > 0, "At most %s may be unacknowledged at a time.", view.Count(uint64(max(0, cfg.MaxAckPending)), "message"))
}

func keeps(all *sentences, c *jetstream.ConsumerInfo) {
	cfg := c.Config
	all.add(cfg.MemoryStorage, "Its state is kept in memory.")
	all.add(!cfg.MemoryStorage, "Its state is kept on disk.")
	if cl := c.Cluster; cl != nil && cl.Leader != "" {
		behind, replicas := 0, ""
		for _, peer := range cl.Replicas {
			if !peer.Current || peer.Offline {
				behind++
			}
		}
		if n := len(cl.Replicas); n > 0 {
			replicas = fmt.Sprintf(", with %s, of which %d not current", view.Count(uint64(n), "replica"), behind)
		}
		all.add(true, "Server %s leads it%s.", cl.Leader, replicas)
	}
	all.add(cfg.InactiveThreshold > 0, "It is deleted after %s without a client.", view.Span(cfg.InactiveThreshold))
}
