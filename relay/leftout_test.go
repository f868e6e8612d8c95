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
	message      int         // it alone is on its way: see receiverOf
	refused      bool        // by its receiver
	cut          string      // the power fails at this point
	hold         string      // or else the message waits at this point, if at any, and the power fails when its sender has the answer
	acknowledged store.Queue // and when its entry of this queue is acknowledged, and a sync of another message's entry covers that
	broken       string      // what is seen after the loss of power
}

// Each sync without which a promise does not hold is left out. The power fails where that must show, and it is seen. It is not seen without the bug.
func TestLossOfPowerFindsASyncThatIsLeftOut(t *testing.T) {
	const once, asked, later, toA = 1, 2, 3, 5 // the last one has no callback
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
			stream: "KV_relay_messages", from: "after-post", message: once, hold: "after-callback", acknowledged: store.ToReceiver,
			broken: "SENDING, and in no queue",
		},
		"next entry before the acknowledgement": {
			stream: "relay_to_sender", from: "before-next", message: once, hold: "before-callback", acknowledged: store.ToReceiver,
			broken: "RESPONSE_RECEIVED_FROM_RECEIVER, and in no queue",
		},
		"pending entry before the acknowledgement": {
			stream: "relay_pending_from_receiver", from: "before-next", message: later, hold: "before-poll", acknowledged: store.ToReceiver,
			broken: "DELIVERED_TO_RECEIVER, and in no queue",
		},
		"failed message before the acknowledgement": {
			stream: "relay_failed_messages", from: "before-next", message: toA, refused: true, acknowledged: store.ToReceiver,
			broken: "FAILED, and not on the list",
		},
		"DONE before the acknowledgement": {
			stream: "KV_relay_messages", from: "after-callback", message: once, acknowledged: store.ToSender,
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
	b, node, begun := startLeavingOut(t, bug.stream, planted)
	defer func() { require.NoError(t, node.Stop(context.Background())) }()
	if bug.refused {
		b.refuse(bug.message)
	}
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
	if q := bug.acknowledged; q != "" {
		eventually(t, func() bool { return begun.Load() && !b.queued(node, q, bug.message) }, "its entry is not acknowledged")
		b.cover(q)
	}
	if bug.hold != "" {
		<-held
	}
	if bug.cut == "" {
		b.fail()
	}
	<-b.failed
	begun.Store(false)
	node = b.restart(node)
	return b.found(node, bug.message)
}

// startLeavingOut is startBlackouts with a disk that leaves out the syncs of a stream, if that bug is planted, while begun is true.
func startLeavingOut(t *testing.T, stream string, planted bool) (b *blackouts, node *Node, begun *atomic.Bool) {
	begun = new(atomic.Bool)
	b, node = startBlackouts(t, &power.Disk{Skip: func(path string) bool {
		return planted && begun.Load() && strings.Contains(path, "/"+stream+"/")
	}})
	return b, node, begun
}

// refuse has the receiver of a message answer 400.
func (b *blackouts) refuse(n int) {
	receiver, _ := receiverOf(n)
	b.s.receiver(receiver, b.receivers.URL+refused, nil)
}

// cover sends a message whose entry of a queue is synced, and with it all that was stored in the queue before.
func (b *blackouts) cover(q store.Queue) {
	if q == store.ToReceiver {
		b.send(4) // without a callback
		return
	}
	b.send(8) // with one
	b.s.awaitStatus("git", "8", "DONE")
}

// queued reports whether a queue has an entry of a message, or may have one.
func (b *blackouts) queued(node *Node, q store.Queue, n int) bool {
	owner, source := receiverOf(n)
	if q == store.ToSender {
		owner = "git"
	}
	first, err := node.store.First(b.t.Context(), q, node.store.Filter(q, owner, source, fmt.Sprint(n)))
	return first != nil || err != nil
}

// found returns what is broken of a message when it has ended, or does not go on, or "".
func (b *blackouts) found(node *Node, n int) (broken string) {
	_, source := receiverOf(n)
	id := fmt.Sprint(n)
	eventually(b.t, func() bool {
		queued := false
		// A message is in the next queue before it leaves one, so their order matters.
		for _, q := range []store.Queue{store.ToReceiver, store.FromReceiver, store.ToSender} {
			queued = queued || b.queued(node, q, n)
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
		case o.Status == "FAILED" && len(b.s.failed("message="+id)) == 0:
			broken = "FAILED, and not on the list"
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

// A redriven message is in a queue on disk before it is off the list. Its record need not be on disk: the worker that finds the entry then finds
// FAILED, and puts the message on the list again.
func TestLossOfPowerAfterARedrive(t *testing.T) {
	for stream, broken := range map[string]string{"relay_to_receiver": "ARRIVED, and in no queue", "KV_relay_messages": ""} {
		t.Run(stream, func(t *testing.T) {
			require.Empty(t, redriven(t, stream, false), "no sync is left out")
			require.Equal(t, broken, redriven(t, stream, true))
		})
	}
}

// redriven redrives a message, lets the power fail when its removal from the list is on disk, and returns what is broken then.
func redriven(t *testing.T, stream string, planted bool) (broken string) {
	const one, another = 5, 6
	b, node, begun := startLeavingOut(t, stream, planted)
	defer func() { require.NoError(t, node.Stop(context.Background())) }()
	b.refuse(one)
	b.refuse(another)
	b.send(one)
	b.s.awaitStatus("a", "5", "FAILED")
	eventually(t, func() bool { return len(b.s.failed("message=5")) == 1 }, "it is not on the list")
	b.light(func() { delete(b.posts, "5") })
	once := object{"unknown_outcome": "at_most_once", "paused": true}
	b.s.receiver("once", b.receivers.URL, once)
	begun.Store(true)
	require.EqualValues(t, 1, b.s.operate("redrive", object{"filter": object{"message": "5"}})["done"])
	b.send(another)
	eventually(t, func() bool { return len(b.s.failed("message=6")) == 1 }, "the other is not on the list") // and on disk, with the removal
	b.fail()
	begun.Store(false)
	node = b.restart(node)
	once["paused"] = false
	b.s.receiver("once", b.receivers.URL, once)
	return b.found(node, one)
}

// A receiver is on disk when its PUT is answered.
func TestLossOfPowerAfterAPut(t *testing.T) {
	for planted, code := range map[bool]int{false: 200, true: 404} {
		b, node, begun := startLeavingOut(t, "KV_relay_receiver_config", planted)
		begun.Store(true)
		b.s.receiver("new", b.receivers.URL, nil)
		b.fail()
		begun.Store(false)
		node = b.restart(node)
		b.s.want(code, "GET", "/v1/receivers/new", adminToken, nil)
		require.NoError(t, node.Stop(context.Background()))
	}
}

// The owner of a rate window is on disk before its first POST. Otherwise the next process does not know that there were any, and exceeds the limit.
func TestLossOfPowerInAWindow(t *testing.T) {
	for _, planted := range []bool{false, true} {
		b, node, begun := startLeavingOut(t, "KV_relay_state", planted)
		b.s.receiver("again", b.receivers.URL, object{"rate_limit": 1, "window_size": 3600})
		begun.Store(true)
		b.send(4)
		b.s.awaitStatus("a", "4", "DONE")
		b.fail()
		begun.Store(false)
		node = b.restart(node)
		b.send(12)
		if planted { // it may wait for the window until the process has read that there is none
			b.s.awaitStatus("a", "12", "DONE")
		} else {
			eventually(t, func() bool { reason, _ := b.s.waiting("a", "12"); return reason == "rate" }, "it does not wait for the window")
			require.Equal(t, 1, b.receivers.count())
		}
		require.NoError(t, node.Stop(context.Background()))
	}
}
