package domain

import (
	"fmt"
	"strings"
)

const (
	maxEventType  = 128  // bytes of an event type, or of a pattern
	maxEventTypes = 2048 // bytes of a list of patterns
)

// EventFilter is what a consumer gets of the messages that come after Since, up to its next filter.
type EventFilter struct {
	Since uint64
	Types string // as [Consumer.EventTypes]
}

// Wants tells whether the consumer gets a message: a change of its event types holds for what is stored after it.
func (c Consumer) Wants(seq uint64, eventType string) bool {
	types := ""
	for _, f := range c.Filters {
		if seq > f.Since {
			types = f.Types
		}
	}
	return seq > c.Since && matchesEventType(types, eventType)
}

func matchesEventType(types, eventType string) bool {
	if types == "" {
		return true
	}
	for pattern := range strings.SplitSeq(types, ",") {
		front, open := strings.CutSuffix(pattern, "*")
		if open && strings.HasPrefix(eventType, front) || pattern == eventType {
			return true
		}
	}
	return false
}

// ParseEventTypes reads a comma-separated list of event types, of which each may end in an asterisk that stands for
// any rest. An empty list means all.
func ParseEventTypes(s string) (string, error) {
	var patterns []string
	for pattern := range strings.SplitSeq(s, ",") {
		pattern = strings.TrimSpace(pattern)
		if pattern == "" {
			continue
		}
		if err := CheckEventType(strings.TrimSuffix(pattern, "*")); err != nil {
			return "", err
		}
		patterns = append(patterns, pattern)
	}
	list := strings.Join(patterns, ",")
	if len(list) > maxEventTypes {
		return "", fmt.Errorf("%d bytes, at most %d are allowed", len(list), maxEventTypes)
	}
	return list, nil
}

// CheckEventType refuses what could not be told from a list, a pattern or other parts of a stored header.
func CheckEventType(s string) error {
	if len(s) > maxEventType {
		return fmt.Errorf("event type of %d bytes, at most %d are allowed", len(s), maxEventType)
	}
	for _, r := range s {
		if r <= ' ' || r > '~' || strings.ContainsRune(",*{", r) {
			return fmt.Errorf("event type %q has %q: give visible ASCII without comma, asterisk and brace; a pattern may end in one asterisk", s, r)
		}
	}
	return nil
}
