package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest/power"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

// leftOut is a bug: the syncs of one stream are left out from a point on, until the power fails.
type leftOut struct {
	stream, from string
	message      int    // it alone is on its way: see receiverOf
	cut          string // the power fails at this point
	hold         string // or else the message waits at this point, and the power fails when its sender has the answer
	acknowledged bool   // and when its entry is acknowledged, and another message was accepted, whose sync covers the acknowledgement
	broken       string // what is seen after the loss of power
}

// Each sync without which a promise does not hold is left out. The power fails where that must show, and it is seen. It is not seen without the bug.
func TestLossOfPowerFindsASyncThatIsLeftOut(t *testing.T) {
	const once, asked = 1, 2
	for name, bug := range map[string]leftOut{
		"record before the answer": {
			stream: "KV_relay_messages", from: "before-create", message: once, hold: "before-sending", broken: "lost",
		},
		"entry before the answer": {
			stream: "relay_to_receiver", from: "before-create", message: once, hold: "before-sending", broken: "ARRIVED, and in no queue",
		},
		"attempt before the POST": {
			stream: "KV_relay_messages", from: "before-sending", message: asked, cut: "after-post", broken: "sent 2 times",
		},
		"result before the callback and the acknowledgement": {
			stream: "KV_relay_messages", from: "after-post", message: once, hold: "after-callback", acknowledged: true,
			broken: "SENDING, and in no queue",
		},
		"next entry before the acknowledgement": {
			stream: "relay_to_sender", from: "before-next", message: once, hold: "before-callback", acknowledged: true,
			broken: "RESPONSE_RECEIVED_FROM_RECEIVER, and in no queue",
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, bug.run(t, false), "no sync is left out")
			require.Equal(t, bug.broken, bug.run(t, true))
		})
	}
}

// run sends the message, lets the power fail, and returns what is broken then.
func (bug leftOut) run(t *testing.T, planted bool) (broken string) {
	var begun atomic.Bool
	b, node := startBlackouts(t, &power.Disk{Skip: func(path string) bool {
		return planted && begun.Load() && strings.Contains(path, "/"+bug.stream+"/")
	}})
	defer func() { require.NoError(t, node.Stop(context.Background())) }()
	accepted, held := make(chan struct{}), make(chan struct{})
	hold := sync.OnceFunc(func() { close(held) })
	work.OnCrashpoint(func(_, point string) {
		if point == bug.from {
			if point != "before-create" {
				<-accepted // what the answer needs is on disk
			}
			begun.Store(true)
		}
		switch {
		case !begun.Load():
		case point == bug.cut:
			b.fail()
		case point == bug.hold:
			hold()
			<-b.failed
		}
	})
	b.send(bug.message)
	close(accepted)
	if bug.acknowledged {
		receiver, source := receiverOf(bug.message)
		eventually(t, func() bool {
			first, err := node.store.First(t.Context(), store.ToReceiver, node.store.Filter(store.ToReceiver, receiver, source, fmt.Sprint(bug.message)))
			return first == nil && err == nil
		}, "its entry is not acknowledged")
		b.send(4) // to a receiver without a callback
	}
	if bug.cut == "" {
		<-held
		b.fail()
	}
	<-b.failed
	begun.Store(false)
	node = b.restart(node)
	return b.found(node, bug.message)
}

// found returns what is broken of a message when it has ended, or does not go on, or "".
func (b *blackouts) found(node *Node, n int) (broken string) {
	receiver, source := receiverOf(n)
	id := fmt.Sprint(n)
	eventually(b.t, func() bool {
		queued := false
		// A message is in the next queue before it leaves one, so their order matters.
		for _, q := range []store.Queue{store.ToReceiver, store.FromReceiver, store.ToSender} {
			owner := receiver
			if q == store.ToSender {
				owner = "git"
			}
			first, err := node.store.First(b.t.Context(), q, node.store.Filter(q, owner, source, id))
			queued = queued || first != nil || err != nil
		}
		code, data := b.s.call("GET", "/v1/messages/"+source+"/"+id, adminToken, nil)
		var o struct{ Status string }
		if code == http.StatusOK {
			require.NoError(b.t, json.Unmarshal(data, &o))
		}
		switch {
		case code == http.StatusNotFound:
			broken = "lost"
		case queued:
			return false
		case o.Status != "DONE" && o.Status != "FAILED":
			broken = o.Status + ", and in no queue"
		}
		return true
	}, "it does not end")
	b.mu.Lock()
	defer b.mu.Unlock()
	if broken == "" && b.posts[id] > 1 {
		broken = fmt.Sprintf("sent %d times", b.posts[id])
	}
	return broken
}
