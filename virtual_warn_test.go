package jetpull

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestWarnsOfAWaitThatOutlivesThePin: a long MaxWait is told once, whether it is
// the Subscription's or a call's.
func TestWarnsOfAWaitThatOutlivesThePin(t *testing.T) {
	var log bytes.Buffer
	warnings := func() int { return strings.Count(log.String(), "outlive the pin") }
	s := &Subscription{}
	s.configure(jetstream.ConsumerConfig{PriorityPolicy: jetstream.PriorityPolicyPinned, PinnedTTL: 10 * time.Second})
	set := defaultSettings()
	set.logger = slog.New(slog.NewTextHandler(&log, nil))
	set.maxWait = 5 * time.Second
	s.warnPinTimeout(set)
	require.Zero(t, warnings(), "half of the priority timeout is well under it")
	set.maxWait = 6 * time.Second
	s.warnPinTimeout(set)
	s.warnPinTimeout(set)
	require.Equal(t, 1, warnings())
	s = &Subscription{}
	s.configure(jetstream.ConsumerConfig{PriorityPolicy: jetstream.PriorityPolicyOverflow})
	s.warnPinTimeout(set)
	require.Equal(t, 1, warnings(), "there is no pin")
}
