package progress_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/progress"
)

func TestBarLogsWhereThereIsNoTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		bar := progress.New(&out, "orders", 20_000)
		bar.Add(1000)
		require.Empty(t, out.String(), "nothing to tell yet")
		time.Sleep(2 * time.Second)
		bar.Add(1000)
		bar.Add(1000)
		time.Sleep(2 * time.Second)
		bar.Add(17_000)
		bar.Done()
		bar.Done()
		require.Equal(t, strings.Join([]string{
			"orders: 2,000 of 20,000 in 2s, 1,000/s",
			"orders: 20,000 in 4s, 5,000/s",
			"orders: 20,000 in 4s, 5,000/s",
			"",
		}, "\n"), out.String())
	})
}

func TestBarShowsWhereItStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		bar := progress.New(&out, "orders", 10)
		time.Sleep(time.Second)
		bar.Add(3)
		bar.Done()
		require.Equal(t, "orders: 3 of 10 in 1s, 3/s\n", out.String())
	})
}

func TestOpenBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		bar := progress.New(&out, "orders", 10)
		time.Sleep(2 * time.Second)
		bar.Add(9)
		time.Sleep(2 * time.Second)
		bar.Add(11)
		bar.Clear()
		bar.Done()
		bar = progress.New(&out, "all", 0)
		time.Sleep(2 * time.Second)
		bar.Add(0)
		bar.Done()
		require.Equal(t, strings.Join([]string{
			"orders: 9 of 10 in 2s, 5/s",
			"orders: 20 in 4s, 5/s",
			"all: 0 in 2s, 0/s",
			"all: 0 in 2s, 0/s",
			"",
		}, "\n"), out.String())
	})
}

func TestBarIsSharedByGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // else it may take long enough for a line in between
		var out bytes.Buffer
		bar := progress.New(&out, "orders", 1000)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range 100 {
					bar.Add(1)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		bar.Done()
		require.Equal(t, "orders: 1,000 in 1s, 1,000/s\n", out.String())
	})
}

func TestNilBar(t *testing.T) {
	var bar *progress.Bar
	bar.Add(1)
	bar.Done()
	bar.Clear()
	var out bytes.Buffer
	require.Equal(t, &out, bar.Over(&out))
}

func TestOverWithoutTerminalIsTheWriterItself(t *testing.T) {
	var out bytes.Buffer
	require.Equal(t, &out, progress.New(&out, "orders", 1).Over(&out))
}

func TestFigures(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -45678: "-45,678", -456: "-456"} {
		require.Equal(t, want, progress.Count(n))
	}
	require.Equal(t, "0 items, 1 item, 1,204 items", progress.Plural(0, "item")+", "+progress.Plural(1, "item")+", "+progress.Plural(1204, "item"))
	require.EqualValues(t, 0, progress.Rate(5, 0))
	require.EqualValues(t, 2000, progress.Rate(500, 250*time.Millisecond))
	for d, want := range map[time.Duration]string{
		0: "0s", 12_345_678: "12.35ms", 1_234_567_890: "1.23s", 45_678: "45.68µs", 12: "12ns", 90*time.Second + 1: "1m30s",
	} {
		require.Equal(t, want, progress.Short(d))
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, progress.Table(&out, []string{"phase", ">messages", "by"}, [][]string{
		{"fetch", "12,000", "four workers"},
		{"größer", "8", ""},
	}))
	require.Equal(t, strings.Join([]string{
		"phase   messages  by",
		"──────  ────────  ────────────",
		"fetch     12,000  four workers",
		"größer         8",
		"",
	}, "\n"), out.String())
	out.Reset()
	require.NoError(t, progress.Table(&out, []string{"a\r", "b"}, [][]string{{"c\x1b[2J", "d\ne"}}))
	require.Equal(t, strings.Join([]string{
		`"a\r"       b`,
		`──────────  ──────`,
		`"c\x1b[2J"  "d\ne"`,
		"",
	}, "\n"), out.String(), "what cannot be printed is quoted")
	require.ErrorContains(t, progress.Table(&out, []string{"a", "b"}, [][]string{{"x"}}), "a row has 1 cells, the header 2")
}
