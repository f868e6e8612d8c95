package test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
const maxFirst = 40_000

// many are the consumers of a large account.
func many(n int) *fakeNATS {
	fake := &fakeNATS{}
	for i := range n {
		fake.consumers = append(fake.consumers, &jetstream.ConsumerInfo{
			Stream: fmt.Sprintf("STREAM_%02d", i%20), Name: fmt.Sprintf("consumer-%04d", i), NumPending: uint64(i * 7919 % 5000), NumAckPending: i % 30,
			NumWaiting: i % 3,
			Created:    time.Now(), Config: jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1000, AckWait: 30 * time.Second},
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

// openPage opens a page as a browser does, and returns the lines of its stream of events.
func openPage(t testing.TB, url string) *bufio.Scanner {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return lines
}

const (
	// pagesVariable has the number and the URL of the pages that TestReadPages opens.
	pagesVariable = "CONSOLE_TEST_PAGES"
	// firstPending is shown by the first change of BenchmarkOpenPages, and each change adds one.
	firstPending = uint64(10_000)
)

// TestReadPages is the browsers' side of BenchmarkOpenPages, in a process of its own. It opens the pages, and prints a line when all of them
// have the next change. It ends when a page ends.
func TestReadPages(t *testing.T) {
	number, url, ok := strings.Cut(os.Getenv(pagesVariable), " ")
	if !ok {
		t.Skip("it is a part of BenchmarkOpenPages")
	}
	n, err := strconv.Atoi(number)
	require.NoError(t, err)
	pages := make([]*bufio.Scanner, n)
	for i := range pages {
		pages[i] = openPage(t, url)
	}
	for pending := firstPending; ; pending++ {
		shown := fmt.Sprintf("%d,%03d", pending/1000, pending%1000)
		var all sync.WaitGroup
		var ended atomic.Bool
		for _, page := range pages {
			all.Go(func() {
				for !strings.Contains(page.Text(), shown) {
					if !page.Scan() {
						ended.Store(true)
						return
					}
				}
			})
		}
		all.Wait()
		if ended.Load() {
			return
		}
		fmt.Println(pending)
	}
}

// BenchmarkOpenPages measures what open pages cost. A source changes as soon as all pages have its last change, so each sample of it is sent
// to each page. It reports the time until the last page has a change, the processor time and the memory of the console's process, and how
// often the source is queried.
func BenchmarkOpenPages(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			fake := many(1000)
			base := serve(b, console.Config{NATS: fake})
			reader := exec.CommandContext(b.Context(), os.Args[0], "-test.run", "^TestReadPages$", "-test.timeout", "0")
			reader.Env = append(os.Environ(), fmt.Sprintf("%s=%d %sconsumers?live=1", pagesVariable, n, base))
			out, err := reader.StdoutPipe()
			require.NoError(b, err)
			require.NoError(b, reader.Start())
			lines := bufio.NewScanner(out)
			pending := firstPending
			change := func() {
				fake.set(func() {
					next := *fake.consumers[0]
					next.NumPending = pending
					fake.consumers[0] = &next
				})
				require.True(b, lines.Scan(), "the pages ended")
				require.Equal(b, strconv.FormatUint(pending, 10), lines.Text())
				pending++
			}
			change() // now all pages are open
			var took []time.Duration
			begun, cpu, asked := time.Now(), cpuTime(b), fake.asked()
			for b.Loop() {
				changed := time.Now()
				change()
				took = append(took, time.Since(changed))
			}
			elapsed := time.Since(begun).Seconds()
			b.ReportMetric(100*(cpuTime(b)-cpu).Seconds()/elapsed, "cpu-%")
			b.ReportMetric(float64(fake.asked()-asked)/elapsed, "queries/s")
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapInuse+m.StackInuse)/1e6, "MB")
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
			require.NoError(b, reader.Process.Kill())
			_ = reader.Wait() // it was killed
		})
	}
}

// BenchmarkPages measures how long a page takes to be answered, with many objects. It reports the 95th percentile.
func BenchmarkPages(b *testing.B) {
	fake := many(10_000)
	const letters = 1_000_000
	fake.streams = []*jetstream.StreamInfo{{
		Config: jetstream.StreamConfig{Name: "DLQ"},
		State:  jetstream.StreamState{Msgs: letters, FirstSeq: 1, LastSeq: letters},
	}}
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
		receivers = append(receivers, map[string]any{
			"name": name, "post_endpoint": "http://receiver",
			"state": map[string]any{"breaker": "closed", "backlog": i},
		})
	}
	for i := range 50 {
		failed = append(failed, map[string]any{
			"id": fmt.Sprint(i), "source_id": "shop", "message_id": fmt.Sprint(i), "receiver": "consumer-0001",
			"error": "refused", "time": time.Now(),
		})
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
	fill(b, store, "vast", 3_000_000)
	base := serve(b, console.Config{NATS: fake, Broker: broker, Relay: relay, Feed: store})
	for _, page := range []string{
		"overview", "consumers", "consumers?q=consumer-09&sort=rate", "consumer?stream=STREAM_00&name=consumer-0000", "streams", "deadletters",
		"deadletters?reason=reason+7", "feed", "feed?status=Failed",
		"partition?id=partition-00042", "partition?id=vast", "broker", "broker?sort=queued", "brokerconsumer?channel=orders&consumer=consumer-0001", "channel?name=orders",
		"relay", "receiver?name=consumer-0001", "failed", "failed?receiver=consumer-0001", "operations", "log",
	} {
		b.Run(page, func(b *testing.B) { measurePage(b, base+page) })
	}
}

// fill makes a partition with many items.
func fill(b *testing.B, store *feed.Store, partition string, items int) {
	b.Helper()
	_, err := store.CreatePartition(b.Context(), feed.Partition{ID: partition})
	require.NoError(b, err)
	const batch = 10_000
	for from := 0; from < items; from += batch {
		more := make([]feed.Item, batch)
		for i := range more {
			more[i].ID = strconv.Itoa(from + i)
		}
		require.NoError(b, store.Insert(b.Context(), partition, more...))
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
