package page

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/view"
)

// describe is the configuration of a consumer in sentences.
func describe(c *jetstream.ConsumerInfo) []string {
	cfg := c.Config
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if cfg.Description != "" {
		say("Description: %s", cfg.Description)
	}
	say("%s", delivers(&cfg))
	if filters := filters(&cfg); len(filters) > 0 {
		say("It delivers messages with these subjects only: %s.", strings.Join(filters, ", "))
	}
	lines = append(lines, acknowledges(&cfg)...)
	if cfg.DeliverSubject != "" {
		say("The server pushes messages to the subject %s.", cfg.DeliverSubject)
	} else {
		say("Clients pull. At most %s wait at a time.", view.Count(uint64(max(0, cfg.MaxWaiting)), "pull request"))
	}
	if cfg.MaxRequestBatch > 0 {
		say("A pull request may ask for at most %s.", view.Count(uint64(cfg.MaxRequestBatch), "message"))
	}
	if cfg.MaxRequestExpires > 0 {
		say("A pull request may wait for at most %s.", view.Span(cfg.MaxRequestExpires))
	}
	if cfg.MaxRequestMaxBytes > 0 {
		say("A pull request may ask for at most %s.", view.Bytes(uint64(cfg.MaxRequestMaxBytes)).Text)
	}
	if cfg.RateLimit > 0 {
		say("It delivers at most %d bits in a second.", cfg.RateLimit)
	}
	if cfg.HeadersOnly {
		say("It delivers headers without payloads.")
	}
	if len(cfg.PriorityGroups) > 0 {
		say("Clients pull in the groups %s. The policy is %s.", strings.Join(cfg.PriorityGroups, ", "), policyName(cfg.PriorityPolicy))
	}
	lines = append(lines, keeps(c)...)
	for _, key := range slices.Sorted(maps.Keys(cfg.Metadata)) {
		if !strings.HasPrefix(key, "_nats.") {
			say("Metadata %s: %s", key, cfg.Metadata[key])
		}
	}
	return lines
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

func acknowledges(cfg *jetstream.ConsumerConfig) []string {
	var lines []string
	switch cfg.AckPolicy {
	case jetstream.AckNonePolicy:
		return []string{"Messages count as acknowledged when they are delivered. Nothing is redelivered."}
	case jetstream.AckAllPolicy:
		lines = append(lines, fmt.Sprintf("An acknowledgement covers all messages before it. A message that is not acknowledged within %s is redelivered.",
			view.Span(cfg.AckWait)))
	default:
		lines = append(lines, fmt.Sprintf("Each message must be acknowledged within %s, or it is redelivered.", view.Span(cfg.AckWait)))
	}
	if len(cfg.BackOff) > 0 {
		waits := make([]string, len(cfg.BackOff))
		for i, d := range cfg.BackOff {
			waits[i] = view.Span(d)
		}
		lines = append(lines, "Redeliveries wait for "+strings.Join(waits, ", ")+"; the last of these holds for all later ones.")
	}
	if cfg.MaxDeliver > 0 {
		lines = append(lines, fmt.Sprintf("A message is delivered at most %s. After that it stays in the stream and is not delivered again.",
			view.Count(uint64(cfg.MaxDeliver), "time")))
	} else {
		lines = append(lines, "A message is redelivered without limit.")
	}
	if cfg.MaxAckPending > 0 {
		lines = append(lines, fmt.Sprintf("At most %s may be unacknowledged at a time.", view.Count(uint64(cfg.MaxAckPending), "message")))
	}
	return lines
}

func keeps(c *jetstream.ConsumerInfo) []string {
	cfg := c.Config
	where := "on disk"
	if cfg.MemoryStorage {
		where = "in memory"
	}
	lines := []string{"Its state is kept " + where + "."}
	if cl := c.Cluster; cl != nil && cl.Leader != "" {
		line := "Server " + cl.Leader + " leads it"
		behind := 0
		for _, peer := range cl.Replicas {
			if !peer.Current || peer.Offline {
				behind++
			}
		}
		if n := len(cl.Replicas); n > 0 {
			line += fmt.Sprintf(", with %s, of which %d not current", view.Count(uint64(n), "replica"), behind)
		}
		lines = append(lines, line+".")
	}
	if cfg.InactiveThreshold > 0 {
		lines = append(lines, fmt.Sprintf("It is deleted after %s without a client.", view.Span(cfg.InactiveThreshold)))
	}
	return lines
}
