package transport

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// A frame may wait to be read when its inbox is dropped.
func TestAFrameOfADroppedInbox(t *testing.T) {
	b := &inboxes{}
	require.Zero(t, *b.of(&nats.Subscription{}))
}
