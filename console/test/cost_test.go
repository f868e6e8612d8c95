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
		var before, after syscall.Rusage
		runtime.GC()
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
		asked := fake.asked()
		time.Sleep(5 * time.Second)
		require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
		asks = fake.asked() - asked
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return asks, time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()), m.HeapInuse + m.StackInuse
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

// BenchmarkPages measures how long a page takes to be answered, with many objects. It reports the 95th percentile.
func BenchmarkPages(b *testing.B) {
	fake := many(1000)
	const letters = 100_000
	fake.streams = []*jetstream.StreamInfo{{Config: jetstream.StreamConfig{Name: "DLQ"}, State: jetstream.StreamState{Msgs: letters, FirstSeq: 1, LastSeq: letters}}}
	for i := range uint64(letters) {
		fake.messages = append(fake.messages, &jetstream.RawStreamMsg{
			Sequence: i + 1, Subject: "dlq", Time: time.Now(), Header: nats.Header{jetpull.HeaderDeadSubject: {"a"}, jetpull.HeaderDeadReason: {fmt.Sprintf("reason %d", i%100)}},
		})
	}
	ctx := context.Background()
	store, err := feed.Open(ctx, "sqlite:"+filepath.Join(b.TempDir(), "feed.db"))
	require.NoError(b, err)
	b.Cleanup(func() { _ = store.Close() })
	for i := range 10_000 {
		_, err := store.CreatePartition(ctx, feed.Partition{ID: fmt.Sprintf("partition-%05d", i)}, feed.Item{ID: "a"})
		require.NoError(b, err)
	}
	base := serve(b, console.Config{NATS: fake, Feed: store})
	for _, page := range []string{
		"overview", "consumers", "consumers?q=consumer-09&sort=rate", "consumer?stream=STREAM_00&name=consumer-0000", "streams", "deadletters", "deadletters?reason=reason+7", "feed", "feed?status=Failed",
		"partition?id=partition-00042", "operations", "log",
	} {
		b.Run(page, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				begun := time.Now()
				fetch(b, base+page)
				took = append(took, time.Since(begun)/2) // it reads the page twice
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
		})
	}
}
