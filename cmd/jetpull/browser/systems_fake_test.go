package test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/feed"
)

// fakes are sources whose every string is made of one name. They record what they are asked to change.
type fakes struct {
	name string
	nats *fakeNATS
	// payload is what messages and items have in place of the name; empty: the name.
	payload string

	mu    sync.Mutex
	calls []string
	err   error
	n     int
}

func newFakes(name string) *fakes {
	raw := name
	name = strings.ToValidUTF8(name, "\uFFFD") // a name in JSON is valid
	f := &fakes{name: name, nats: &fakeNATS{}}
	f.nats.changed = f.record
	for i, paused := range []bool{false, true} {
		f.nats.consumers = append(f.nats.consumers, &jetstream.ConsumerInfo{
			Stream: name, Name: f.nth(i + 1), NumPending: 7, Paused: paused, Created: time.Now(),
			Config: jetstream.ConsumerConfig{
				Description: name, FilterSubject: name, Metadata: map[string]string{name: name}, PriorityPolicy: jetstream.PriorityPolicyPinned,
				PriorityGroups: []string{name},
			},
			Cluster:        &jetstream.ClusterInfo{Leader: name},
			PriorityGroups: []jetstream.PriorityGroupState{{Group: name, PinnedClientID: name, PinnedTS: time.Now()}},
		})
	}
	const letters = 20
	f.nats.streams = []*jetstream.StreamInfo{{
		Config: jetstream.StreamConfig{Name: name, Subjects: []string{name}},
		State:  jetstream.StreamState{Msgs: letters, FirstSeq: 1, LastSeq: letters, Consumers: 2},
	}}
	payload, _ := json.Marshal(map[string]any{name: []any{name, map[string]string{name: name}}}) // strings can be marshalled
	for i := range uint64(letters) {
		f.nats.messages = append(f.nats.messages, &jetstream.RawStreamMsg{
			Sequence: i + 1, Subject: raw, Time: time.Now(), Data: payload, Header: nats.Header{
				raw: {raw}, jetpull.HeaderDeadSubject: {name}, jetpull.HeaderDeadStream: {name}, jetpull.HeaderDeadConsumer: {name},
				jetpull.HeaderDeadReason: {name},
			},
		})
	}
	return f
}

// nth is another name.
func (f *fakes) nth(n int) string {
	if n == 1 {
		return f.name
	}
	return f.name + fmt.Sprint(n)
}

func (f *fakes) config() console.Config {
	return console.Config{NATS: f.nats, Broker: fakeSystem{f, f.broker}, Relay: fakeSystem{f, f.relay}, Feed: fakeFeed{f}}
}

func (f *fakes) record(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
}

// fail has every request fail from now on.
func (f *fakes) fail(err error) {
	f.nats.set(func() { f.nats.err = err })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakes) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// count gives the sources another number of objects.
func (f *fakes) count(n int) {
	f.nats.set(func() {
		first, stream := *f.nats.consumers[0], *f.nats.streams[0]
		first.NumPending, stream.State.Msgs = uint64(n), uint64(n)
		f.nats.consumers[0], f.nats.streams[0] = &first, &stream
		for seq := stream.State.LastSeq + 1; seq <= uint64(n); seq++ {
			one := *f.nats.messages[0]
			one.Sequence, stream.State.LastSeq = seq, seq
			f.nats.messages = append(f.nats.messages, &one)
		}
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n = n
}

// number is what count has set.
func (f *fakes) number() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// called waits for a call that begins so.
func (f *fakes) called(t testing.TB, begin string) {
	t.Helper()
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		i := slices.IndexFunc(f.calls, func(call string) bool { return strings.HasPrefix(call, begin) })
		if i >= 0 {
			f.calls = slices.Delete(f.calls, i, i+1)
		}
		return i >= 0
	}, waitMost, time.Millisecond, "no call of %s", begin)
}

// fakeSystem is a system with an HTTP interface.
type fakeSystem struct {
	*fakes
	answer func(path string) any
}

func (f fakeSystem) Call(ctx context.Context, method, path string, body, answer any) error {
	_, err := f.Send(ctx, method, path, nil, body, answer)
	return err
}

func (f fakeSystem) Send(_ context.Context, method, path string, header http.Header, body, answer any) (http.Header, error) {
	if err := f.failure(); err != nil {
		return nil, err
	}
	path, _, _ = strings.Cut(path, "?")
	var given any
	if method == http.MethodGet {
		given = f.answer(path)
	} else {
		text, _ := body.([]byte)
		if text == nil {
			text, _ = json.Marshal(body) // what the pages send can be marshalled
		}
		f.record(fmt.Sprintf("%s %s %s %s", method, path, header.Get("X-Broker-Channel-Token"), text))
		given = map[string]any{"id": "redrive-1", "matched": 3, "Count": 3, "state": "running", "verb": "redrive"}
	}
	if answer == nil {
		return http.Header{"Location": {"/channel/" + url.PathEscape(f.name) + "/consumer/" + url.PathEscape(f.name) + "/replay/1"}}, nil
	}
	data, err := json.Marshal(given)
	if err == nil {
		err = json.Unmarshal(data, answer)
	}
	return nil, err
}

func (f *fakes) broker(at string) any {
	n, now := f.name, time.Now()
	part, _ := url.PathUnescape(path.Base(at)) // an ID of the pages
	state := map[string]any{
		"ChannelID": n, "ConsumerID": n, "Type": "push", "State": "active", "Breaker": "open", "FailingSince": now,
		"CallbackURL": "http://" + n, "Concurrency": 1,
	}
	paused := map[string]any{"ChannelID": n, "ConsumerID": f.nth(2), "Type": n, "State": "paused", "PausedBy": n, "PausedAt": now, "Breaker": n}
	operation := "/channel/" + url.PathEscape(n) + "/consumer/" + url.PathEscape(n) + "/replay/1"
	switch {
	case at == "/job-status":
		return map[string]any{n: map[string]any{n: []map[string]any{
			{"status": 1001, "count": cmp.Or(f.number(), 2), "oldestItemTimestamp": now},
			{"status": 1004, "count": 3},
		}}}
	case at == "/consumers":
		return map[string]any{"Result": []any{state, paused}, "Unused": []string{f.nth(3)}}
	case at == "/replays":
		return map[string]any{"Result": []any{map[string]any{
			"URL": operation, "Kind": "replay", "ChannelID": n, "ConsumerID": n, "State": "RUNNING", "Status": n, "Message": n, "By": n, "Count": 9, "CreatedAt": now,
			"ChangedAt": now,
		}}}
	case at == "/dead-jobs":
		return map[string]any{"Result": []any{map[string]any{
			"ID": n, "ChannelID": n, "ConsumerID": n, "MessageID": n, "ProducedBy": n, "DeadSince": now,
			"Reason": n, "Attempts": 3,
		}}}
	case at == "/dead-jobs/operations":
		return map[string]any{"Result": []any{map[string]any{
			"URL": "/dead-jobs/operations/requeue-1", "Kind": n, "State": "RUNNING", "Count": 9, "By": n, "Filter": map[string]string{"Consumer": n},
			"CreatedAt": now, "ChangedAt": now,
		}}}
	case strings.Contains(at, "/replay/"):
		return map[string]any{"Count": 9}
	case strings.HasSuffix(at, "/attempts"):
		return map[string]any{"Result": []any{map[string]any{"Attempt": 1, "StatusCode": 500, "StartedAt": now, "Error": n}}}
	case strings.HasSuffix(at, "/messages-status"):
		return map[string]any{"counts": map[string]any{"DISPATCHED": map[string]int{"Count": 5}}}
	case strings.HasSuffix(at, "messages"):
		return map[string]any{"result": []string{"/channel/c/message/" + url.PathEscape(n)}}
	case strings.Contains(at, "/scheduled-message/"):
		return map[string]any{"payload": cmp.Or(f.payload, n), "contentType": n, "producedBy": n, "status": "SCHEDULED", "dispatchSchedule": now.Add(time.Hour)}
	case strings.Contains(at, "/message/"):
		return map[string]any{
			"Payload": cmp.Or(f.payload, n), "ContentType": n, "ProducedBy": n, "Status": n, "ReceivedAt": now,
			"Jobs": []any{map[string]any{
				"ListenerName": n, "Status": "DEAD", "StatusChangedAt": now, "AttemptsURL": "/attempts",
				"ConsumerURL": "/channel/c/consumer/" + url.PathEscape(n),
			}},
		}
	case part == f.nth(2):
		return paused
	}
	return state
}

func (f *fakes) response() any {
	if f.payload != "" {
		return f.payload
	}
	return map[string]string{f.name: f.name}
}

func (f *fakes) relay(at string) any {
	n, now := f.name, time.Now()
	receiver := func(i int, paused, disabled bool) any {
		return map[string]any{
			"name": f.nth(i), "post_endpoint": "http://" + n, "status_endpoint": n, "order": n, "unknown_outcome": n, "paused": paused, "rate_limit": 5,
			"window_size": 1,
			"state": map[string]any{
				"breaker": n, "disabled": disabled, "backlog": cmp.Or(f.number(), 3), "oldest": 5, "refused": 0,
				"answers": map[string]any{"total": 300, "count": 3, "p50": 0.012, "p99": 0.3},
			},
		}
	}
	item := map[string]any{
		"id": n, "source_id": n, "message_id": n, "receiver": n, "stage": n, "reason": n, "error": n, "time": now,
		"attempts": f.number(),
	}
	if strings.HasSuffix(at, "/request") {
		return map[string]any{"headers": map[string]string{n: n}, "payload": []byte(cmp.Or(f.payload, n))}
	}
	switch at {
	case "/v1/messages":
		return map[string]any{"items": []any{map[string]any{
			"source_id": n, "message_id": n, "receiver": n, "status": n, "attempts": cmp.Or(f.number(), 1), "arrived": now, "changed": now,
		}}}
	case "/v1/receivers":
		return map[string]any{"items": []any{receiver(1, false, false), receiver(2, true, false), receiver(3, false, true)}}
	case "/v1/failed":
		return map[string]any{"items": []any{item}, "total": 3}
	case "/v1/operations":
		return map[string]any{"items": []any{map[string]any{
			"id": "redrive-1", "verb": n, "state": "running", "matched": cmp.Or(f.number(), 9), "by": n, "began": now, "changed": now,
			"filter": map[string]string{"receiver": n},
		}}}
	}
	return map[string]any{
		"receiver": n, "status": "FAILED", "arrived": now, "ended": now, "response": f.response(),
		"error":    map[string]string{"code": n, "stage": n, "message": n},
		"attempts": []any{map[string]any{"number": 1, "time": now, "error": n, "answer": map[string]any{"headers": map[string]string{n: n}, "body": n}}},
		"sender":   n,
	}
}

// fakeFeed is a feed with a partition that failures hold, and one that is open.
type fakeFeed struct{ *fakes }

func (f fakeFeed) Backlog(context.Context) (feed.Backlog, error) {
	return feed.Backlog{Ready: cmp.Or(f.number(), 3), Failed: 2, BlockedPartitions: 1}, f.failure()
}

func (f fakeFeed) Partitions(_ context.Context, q feed.Query) ([]feed.Partition, error) {
	if q.After != "" {
		return nil, f.failure()
	}
	first, _ := f.Partition(context.Background(), f.name)
	second, _ := f.Partition(context.Background(), f.nth(2))
	return []feed.Partition{first, second}, f.failure()
}

func (f fakeFeed) Partition(_ context.Context, id string) (feed.Partition, error) {
	p := feed.Partition{ID: id, Status: feed.Available, Owner: f.name, Until: time.Now().Add(time.Minute)}
	if id == f.name {
		p.Status = feed.Failed
	}
	return p, f.failure()
}

func (f fakeFeed) CountsUpTo(_ context.Context, id string, _ int) (map[int]feed.Counts, bool, error) {
	if id != f.name {
		return map[int]feed.Counts{0: {Available: 5}}, false, f.failure()
	}
	return map[int]feed.Counts{0: {Available: cmp.Or(f.number(), 5), Failed: 2}, 1: {Complete: 4}}, false, f.failure()
}

func (f fakeFeed) item() feed.Item {
	return feed.Item{ID: f.name, Partition: f.name, Status: feed.Failed, Attempt: 2, Errors: []string{f.name}, Data: []byte(cmp.Or(f.payload, f.name))}
}

func (f fakeFeed) Items(context.Context, feed.Query) ([]feed.Item, error) {
	return []feed.Item{f.item()}, f.failure()
}

func (f fakeFeed) Item(context.Context, string, string) (feed.Item, error) {
	return f.item(), f.failure()
}

func (f fakeFeed) change(verb, partition string, more ...any) error {
	f.record(strings.TrimSpace(fmt.Sprint("feed ", verb, " ", partition, " ", fmt.Sprint(more...))))
	return f.failure()
}

func (f fakeFeed) RetryFailed(_ context.Context, partition string, items ...string) (int, error) {
	return 1, f.change("retry", partition, strings.Join(items, " "))
}

func (f fakeFeed) SkipFailed(_ context.Context, partition string, items ...string) (int, error) {
	return 1, f.change("skip", partition, strings.Join(items, " "))
}

func (f fakeFeed) Seal(_ context.Context, p string) error           { return f.change("seal", p) }
func (f fakeFeed) ClosePartition(_ context.Context, p string) error { return f.change("close", p) }
func (f fakeFeed) Reopen(_ context.Context, p string) error         { return f.change("reopen", p) }
func (f fakeFeed) Advance(_ context.Context, p string, gate int) error {
	return f.change("advance", p, gate)
}
