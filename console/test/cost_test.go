package test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/feed"
)

// maxFirst is how many bytes the first page may have, compressed, with its style sheet and its scripts.
const maxFirst = 60_000

// many are the consumers of a large account.
func many(n int) *fakeNATS {
	fake := &fakeNATS{}
	for i := range n {
		fake.consumers = append(fake.consumers, &jetstream.ConsumerInfo{
			Stream: fmt.Sprintf("STREAM_%02d", i%20), Name: fmt.Sprintf("consumer-%04d", i), NumPending: uint64(i * 7919 % 5000), NumAckPending: i % 30, NumWaiting: i % 3,
			Created: time.Now(), Config: jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1000, AckWait: 30 * time.Second},
		})
	}
	return fake
}

// read reads a page or file.
func read(t testing.TB, url string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	r.Header.Set("Accept-Encoding", "identity") // what a test only looks at need not be compressed
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, url)
	return text
}

// fetch reads a page or file as a browser does, and returns the size of what came over the wire.
func fetch(t testing.TB, url string) (text []byte, size int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	text, err = io.ReadAll(answer.Body)
	require.NoError(t, err)
	_ = answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode, url)
	r.Header.Set("Accept-Encoding", "gzip")
	answer, err = http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	packed, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	_ = answer.Body.Close()
	return text, len(packed)
}

func TestTheFirstPageIsSmall(t *testing.T) {
	t.Parallel()
	base := serve(t, console.Config{NATS: many(1000)})
	for _, page := range []string{"overview", "consumers"} {
		html, all := fetch(t, base+page)
		for _, found := range regexp.MustCompile(`(?:src|href)="(static/[^"]+)"`).FindAllSubmatch(html, -1) {
			_, size := fetch(t, base+string(found[1]))
			all += size
		}
		t.Logf("%s: %d bytes compressed, with style sheet and scripts", page, all)
		require.Less(t, all, maxFirst, page)
	}
}

// cpuTime is what this process has used, sources and clients of a test included.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// 100 open pages ask the source as often as one does.
func TestManyOpenPages(t *testing.T) {
	fake := many(1000)
	base := serve(t, console.Config{NATS: fake})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Pages that are open are counted by the events that they get.
	open := func(n int) {
		for range n {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"consumers?live=1", nil)
			require.NoError(t, err)
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			lines := bufio.NewReader(answer.Body)
			_, err = lines.ReadString('\n')
			require.NoError(t, err)
			go func() {
				defer answer.Body.Close()
				_, _ = io.Copy(io.Discard, lines)
			}()
		}
	}
	measure := func() (asks int, cpu time.Duration, memory uint64) {
		runtime.GC()
		before := cpuTime(t)
		asked := fake.asked()
		time.Sleep(5 * time.Second)
		cpu = cpuTime(t) - before
		asks = fake.asked() - asked
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return asks, cpu, m.HeapInuse + m.StackInuse
	}
	if testing.Short() {
		t.Skip("it measures for 10 seconds")
	}
	open(1)
	asks, cpu, memory := measure()
	open(99)
	allAsks, allCPU, allMemory := measure()
	t.Logf("one page: %d requests, %v of CPU in 5 s; 100 pages: %d requests, %v of CPU, %d kB more", asks, cpu, allAsks, allCPU, (int64(allMemory)-int64(memory))/1024)
	require.LessOrEqual(t, allAsks, asks+2)
	require.Less(t, int64(allMemory)-int64(memory), int64(50<<20))
}

// BenchmarkLive measures how long it takes until a change of a source has been sent to an open page. It reports the 95th percentile.
func BenchmarkLive(b *testing.B) {
	fake := many(1000)
	base := serve(b, console.Config{NATS: fake})
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, base+"consumer?stream=STREAM_00&name=consumer-0000&live=1", nil)
	require.NoError(b, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(b, err)
	defer func() { _ = answer.Body.Close() }()
	events := bufio.NewScanner(answer.Body)
	events.Buffer(nil, 1<<20)
	var took []time.Duration
	for pending := uint64(1001); b.Loop(); pending++ {
		begun := time.Now()
		fake.set(func() {
			next := *fake.consumers[0]
			next.NumPending = pending
			fake.consumers[0] = &next
		})
		shown := fmt.Sprintf("%d,%03d", pending/1000, pending%1000)
		for events.Scan() && !strings.Contains(events.Text(), shown) {
		}
		took = append(took, time.Since(begun))
	}
	require.NoError(b, events.Err())
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
}

// BenchmarkPages measures how long a page takes to be answered, with many objects. It reports the 95th percentile.
func BenchmarkPages(b *testing.B) {
	fake := many(1000)
	const letters = 1_000_000
	fake.streams = []*jetstream.StreamInfo{{Config: jetstream.StreamConfig{Name: "DLQ"}, State: jetstream.StreamState{Msgs: letters, FirstSeq: 1, LastSeq: letters}}}
	var headers []nats.Header
	for i := range 100 {
		headers = append(headers, nats.Header{jetpull.HeaderDeadSubject: {"a"}, jetpull.HeaderDeadReason: {fmt.Sprintf("reason %d", i)}})
	}
	for i := range uint64(letters) {
		fake.messages = append(fake.messages, &jetstream.RawStreamMsg{Sequence: i + 1, Subject: "dlq", Time: time.Now(), Header: headers[i%100]})
	}
	systems := newFakes("orders")
	var consumers, receivers, failed []any
	jobs := map[string]any{}
	for i := range 1000 {
		name := fmt.Sprintf("consumer-%04d", i)
		consumers = append(consumers, map[string]any{"ChannelID": "orders", "ConsumerID": name, "Type": "push", "State": "active"})
		jobs[name] = []map[string]any{{"status": 1004, "count": letters / 1000}}
		receivers = append(receivers, map[string]any{"name": name, "post_endpoint": "http://receiver", "state": map[string]any{"breaker": "closed", "backlog": i}})
	}
	for i := range 50 {
		failed = append(failed, map[string]any{"id": fmt.Sprint(i), "source_id": "shop", "message_id": fmt.Sprint(i), "receiver": "consumer-0001", "error": "refused", "time": time.Now()})
	}
	broker := fakeSystem{systems, func(path string) any {
		switch path {
		case "/consumers":
			return map[string]any{"Result": consumers}
		case "/job-status":
			return map[string]any{"orders": jobs}
		}
		return systems.broker(path)
	}}
	relay := fakeSystem{systems, func(path string) any {
		switch path {
		case "/v1/receivers":
			return map[string]any{"items": receivers}
		case "/v1/failed":
			return map[string]any{"items": failed, "cursor": "50"}
		}
		return systems.relay(path)
	}}
	ctx := context.Background()
	store, err := feed.Open(ctx, "sqlite:"+filepath.Join(b.TempDir(), "feed.db"))
	require.NoError(b, err)
	b.Cleanup(func() { _ = store.Close() })
	for i := range 10_000 {
		_, err := store.CreatePartition(ctx, feed.Partition{ID: fmt.Sprintf("partition-%05d", i)}, feed.Item{ID: "a"})
		require.NoError(b, err)
	}
	base := serve(b, console.Config{NATS: fake, Broker: broker, Relay: relay, Feed: store})
	for _, page := range []string{
		"overview", "consumers", "consumers?q=consumer-09&sort=rate", "consumer?stream=STREAM_00&name=consumer-0000", "streams", "deadletters", "deadletters?reason=reason+7", "feed", "feed?status=Failed",
		"partition?id=partition-00042", "broker", "broker?sort=queued", "brokerconsumer?channel=orders&consumer=consumer-0001", "channel?name=orders",
		"relay", "receiver?name=consumer-0001", "failed", "failed?receiver=consumer-0001", "operations", "log",
	} {
		b.Run(page, func(b *testing.B) { measurePage(b, base+page) })
	}
}

// measurePage measures how long a page takes to be answered.
func measurePage(b *testing.B, url string) {
	var took []time.Duration
	before := cpuTime(b)
	for b.Loop() {
		begun := time.Now()
		fetch(b, url)
		took = append(took, time.Since(begun)/2) // it reads the page twice
	}
	slices.Sort(took)
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/2/float64(len(took)), "cpu-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
}
