package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest/power"
	"github.com/jetpull/jetpull/relay/internal/work"
)

// powerPoints are the points at which the power fails: between any two writes of a message, and before and after each wait for the disk.
var powerPoints = []string{
	"before-create", "after-create", "after-route", "before-entry-on-disk", "before-sending", "after-sending", "after-sending-on-disk", "after-post", "before-follow",
	"before-next", "after-next", "after-result", "before-poll", "before-polled", "before-callback", "after-callback", "after-callback-stored",
}

// Paths of receivers that answer 202 and 400.
const (
	later   = "/later"
	refused = "/refused"
)

// blackouts are relays on one store that loses power again and again. Peers and senders count what happened before the power failed.
type blackouts struct {
	t    *testing.T
	disk *power.Disk
	over atomic.Bool  // the senders are to end
	past atomic.Int64 // how many points were passed

	mu       sync.Mutex
	dark     bool            // the power has failed, and no other relay runs yet
	dir      string          // the store
	left     string          // what the power has left of it
	failed   chan struct{}   // closed when it fails
	accepted map[string]bool // messages that were answered with 202 or 200
	posts    map[string]int  // by message
	calls    map[string]int  // callbacks, by message
	s        *site

	receivers, callbacks *peer
}

// startBlackouts starts a relay with receivers, of which each makes another promise, and a sender that is called back.
func startBlackouts(t *testing.T, disk *power.Disk) (*blackouts, *Node) {
	t.Helper()
	b := &blackouts{t: t, disk: disk, accepted: map[string]bool{}, posts: map[string]int{}, calls: map[string]int{}}
	b.receivers, b.callbacks = b.peer(b.posts), b.peer(b.calls)
	node := b.start(t.TempDir())
	t.Cleanup(func() { work.OnCrashpoint(func(_, _ string) {}) })
	url := b.receivers.URL
	status := url + "/" + work.SourcePlaceholder + "/" + work.MessagePlaceholder
	b.s.receiver("again", url, object{"timeout": 1})
	b.s.receiver("once", url, object{"timeout": 1, "unknown_outcome": "at_most_once"})
	b.s.receiver("asked", url, object{"timeout": 1, "status_endpoint": status})
	b.s.receiver("later", url+later, object{"timeout": 1, "status_endpoint": status})
	b.s.sender("git", b.callbacks.URL, "git")
	return b, node
}

// light reports whether the power is on, and runs do if so. All that happens in do happens before the power fails.
func (b *blackouts) light(do func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.dark {
		do()
	}
	return !b.dark
}

// peer answers requests while the power is on.
func (b *blackouts) peer(counts map[string]int) *peer {
	return newPeer(b.t, func(_ int, r seen) (code int, answer string) {
		id := r.Path[strings.LastIndexByte(r.Path, '/')+1:]
		if r.Method == http.MethodPost {
			id = r.Header.Get("Webhook-Id")
			id = id[strings.IndexByte(id, '/')+1:]
		}
		code, answer = http.StatusOK, `{"ok":true}`
		b.light(func() {
			switch {
			case r.Method == http.MethodPost:
				counts[id]++
				switch r.Path {
				case later:
					code = http.StatusAccepted // the relay polls for the response
				case refused:
					code = http.StatusBadRequest
				}
			case counts[id] == 0:
				code = http.StatusNotFound
			}
		})
		if b.isDark() {
			code = 0
		}
		return code, answer
	})
}

// start starts a relay on a folder, and what a loss of power leaves goes to another one.
func (b *blackouts) start(dir string) *Node {
	b.t.Helper()
	b.dir, b.left = dir, b.t.TempDir()
	cfg := testConfig(dir)
	cfg.Relay.Drain, cfg.Relay.Concurrency = time.Second, 64
	n, err := Start(b.t.Context(), cfg, testLog(), func(n *Node) { n.fsync = b.disk.Fsync })
	require.NoError(b.t, err)
	b.mu.Lock()
	b.s, b.dark, b.failed = &site{b.t, n.URL()}, false, make(chan struct{})
	b.mu.Unlock()
	return n
}

// failAt lets the power fail when a point is passed for the n-th time. The disk is copied before anybody goes on.
func (b *blackouts) failAt(point string, n int64) {
	var passed atomic.Int64
	work.OnCrashpoint(func(_, p string) {
		b.past.Add(1)
		if p == point && passed.Add(1) == n {
			b.fail()
		}
	})
}

// awaitFailure reports whether the power has failed. It returns false once no message has passed any point for a minute.
func (b *blackouts) awaitFailure() bool {
	for past := int64(-1); past < b.past.Load(); {
		past = b.past.Load()
		select {
		case <-b.failed:
			return true
		case <-time.After(waitLong):
		}
	}
	return false
}

// restart starts the relay on what the power has left.
func (b *blackouts) restart(node *Node) *Node {
	b.t.Helper()
	work.OnCrashpoint(func(_, _ string) {})
	_ = node.Stop(context.Background())
	require.NoError(b.t, os.RemoveAll(b.dir))
	return b.start(b.left)
}

func (b *blackouts) isDark() bool { return !b.light(func() {}) }

func (b *blackouts) fail() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.dark {
		b.dark = true
		b.disk.Cut(b.t, b.dir, b.left)
		close(b.failed)
	}
}

// receiverOf returns the receiver of a message, and its source. A source that begins with git has a sender with callbacks.
func receiverOf(n int) (receiver, source string) {
	return []string{"again", "once", "asked", "later"}[n%4], []string{"git", "a"}[n/4%2]
}

// send sends a message until it is accepted.
func (b *blackouts) send(n int) {
	receiver, source := receiverOf(n)
	id := fmt.Sprint(n)
	body, err := json.Marshal(message(source, id, receiver))
	if err != nil {
		b.t.Error(err)
		return
	}
	for !b.over.Load() {
		b.mu.Lock()
		url, dark := b.s.url, b.dark
		b.mu.Unlock()
		if dark {
			time.Sleep(waitStep)
			continue
		}
		req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, url+"/v1/messages", bytes.NewReader(body))
		if err != nil {
			b.t.Error(err)
			return
		}
		req.Header.Set("Authorization", "Bearer "+adminToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode/100 == 2 && b.light(func() { b.accepted[id] = true }) {
			return
		}
	}
}

// runBlackouts sends messages in 64 goroutines while the power fails at each point, in rounds, and returns the first promises that were broken.
func runBlackouts(t *testing.T, messages, rounds int) (broken []string) {
	t.Helper()
	b, node := startBlackouts(t, &power.Disk{})
	var next, allowed atomic.Int64
	points := slices.Repeat(powerPoints, rounds)
	allowed.Store(int64(messages / (len(points) + 1)))
	var senders sync.WaitGroup
	for range 64 {
		senders.Go(func() {
			for n := next.Add(1); n <= int64(messages) && !b.over.Load(); n = next.Add(1) {
				for n > allowed.Load() && !b.over.Load() {
					time.Sleep(waitStep)
				}
				b.send(int(n))
			}
		})
	}
	defer func() { require.NoError(t, node.Stop(context.Background())) }()
	defer senders.Wait()
	defer b.over.Store(true)
	for i, point := range points {
		if broken = b.forbidden(messages); len(broken) > 0 {
			return broken
		}
		b.failAt(point, 3+4*int64(i/len(powerPoints)))
		allowed.Store(int64(messages * (i + 2) / (len(points) + 1)))
		if !b.awaitFailure() {
			return append(broken, "no message has passed "+point)
		}
		node = b.restart(node)
	}
	senders.Wait()
	return b.check(messages)
}

// forbidden returns the messages of which a receiver that forbids it has had a second POST.
func (b *blackouts) forbidden(messages int) (broken []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := 1; n <= messages; n++ {
		if receiver, _ := receiverOf(n); receiver != "again" && b.posts[fmt.Sprint(n)] > 1 {
			broken = append(broken, fmt.Sprintf("sent %d times to %s: %d", b.posts[fmt.Sprint(n)], receiver, n))
		}
	}
	return broken
}

// check waits for the end of all messages, and returns the first promises that were broken.
func (b *blackouts) check(messages int) (broken []string) {
	failed := 0
	for n := 1; n <= messages; n++ {
		receiver, source := receiverOf(n)
		id := fmt.Sprint(n)
		var o object
		ended := time.Now().Add(waitLong)
		for ; time.Now().Before(ended); time.Sleep(waitStep) {
			code, data := b.s.call("GET", "/v1/messages/"+source+"/"+id, adminToken, nil)
			if code == http.StatusServiceUnavailable {
				continue // it is not known now
			}
			if o = nil; code == http.StatusOK {
				require.NoError(b.t, json.Unmarshal(data, &o))
			}
			if o == nil || o["status"] == "DONE" || o["status"] == "FAILED" {
				break
			}
		}
		b.mu.Lock()
		posts, calls := b.posts[id], b.calls[id]
		b.mu.Unlock()
		switch {
		case o == nil:
			broken = append(broken, "lost: "+id)
		case o["status"] == "FAILED":
			if failed++; receiver != "once" || o["error"].(object)["code"] != "UNKNOWN_OUTCOME" {
				broken = append(broken, fmt.Sprintf("failed: %s %v", id, o))
			}
		case o["status"] != "DONE":
			broken = append(broken, fmt.Sprintf("not ended: %s %v", id, o))
		case posts == 0:
			broken = append(broken, "not sent: "+id)
		case source == "git" && calls == 0:
			broken = append(broken, "not called back: "+id)
		}
		if len(broken) >= 20 {
			return broken
		}
	}
	broken = append(broken, b.forbidden(messages)...)
	b.mu.Lock()
	defer b.mu.Unlock()
	repeated := 0
	for posts := range maps.Values(b.posts) {
		repeated += posts - 1
	}
	b.t.Logf("%d messages, %d with an unknown outcome, %d POSTs repeated", len(b.accepted), failed, repeated)
	return broken
}

// The power fails between any two writes of a message, five times at each place. No accepted message is lost, and no receiver that forbids it gets
// a second POST.
func TestLossOfPower(t *testing.T) {
	messages, rounds := 10_000, 5
	if testing.Short() {
		messages, rounds = 1500, 1
	}
	require.Empty(t, runBlackouts(t, messages, rounds))
}

// syncsOf counts the syncs of the relay for messages of a number of senders. Messages of at_least_once receivers are synced with their
// entry before the answer, and their result once.
func syncsOf(t *testing.T, senders, messages int) (files int) {
	t.Helper()
	disk := &power.Disk{}
	b := &blackouts{t: t, disk: disk, accepted: map[string]bool{}, posts: map[string]int{}, calls: map[string]int{}}
	r := b.peer(b.posts)
	node := b.start(t.TempDir())
	defer func() { require.NoError(t, node.Stop(context.Background())) }()
	defer b.over.Store(true)
	b.s.receiver("again", r.URL, nil)
	before, _ := disk.Syncs()
	var next atomic.Int64
	var running sync.WaitGroup
	for range senders {
		running.Go(func() {
			for n := next.Add(1); n <= int64(messages); n = next.Add(1) {
				b.send(int(n)*8 + 4) // to again, without a callback
			}
		})
	}
	running.Wait()
	eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.posts) == messages }, "not all are sent")
	for n := range messages {
		b.s.awaitStatus("a", fmt.Sprint((n+1)*8+4), "DONE")
	}
	after, _ := disk.Syncs()
	return after - before
}

// A message costs three syncs at most: of its record and its entry before the answer, and of its result. Senders share them.
func TestSyncsPerMessage(t *testing.T) {
	const messages = 1000
	one, many := syncsOf(t, 1, messages), syncsOf(t, 64, messages)
	t.Logf("syncs for %d messages: %d from one sender, %d from 64", messages, one, many)
	require.LessOrEqual(t, one, 3*messages+messages/10)
	require.Less(t, many, one)
}

// Nothing is accepted any more after a failed sync, and /readyz says so. Nothing is sent whose entry a loss of power can take: once its record says
// SENDING, its sender gets no new entry for it.
func TestFailedDisk(t *testing.T) {
	disk := &power.Disk{}
	dir := t.TempDir()
	n, err := Start(t.Context(), testConfig(dir), testLog(), func(n *Node) { n.fsync = disk.Fsync })
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Stop(context.Background())) }()
	s := &site{t, n.URL()}
	r := newPeer(t, nil)
	s.receiver("ci", r.URL, nil)
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
	s.awaitStatus("a", "1", "DONE")
	disk.Fail(power.Blocks(dir, "relay_to_receiver"))
	var delivered atomic.Int64
	work.OnCrashpoint(func(_, point string) {
		if point == "before-entry-on-disk" {
			delivered.Add(1)
		}
	})
	defer work.OnCrashpoint(func(_, _ string) {})
	s.want(503, "POST", "/v1/messages", adminToken, message("a", "2", "ci"))
	eventually(t, func() bool { return delivered.Load() >= 2 }, "its entry is not delivered again")
	require.Equal(t, "ARRIVED", s.status("a", "2")["status"])
	require.Equal(t, 1, r.count())
	disk.Recover()
	s.want(503, "POST", "/v1/messages", adminToken, message("a", "2", "ci"))
	eventually(t, func() bool { code, _ := s.call("GET", "/readyz", "", nil); return code == 503 }, "it is ready")
	require.Equal(t, 1, disk.Failed())
}
