package progress

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBarsLogWhereThereIsNoTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		bars := NewBars(&out)
		lima, oslo := bars.Add("Lima", 2000), bars.Add("Oslo", 10)
		bars.Set(lima, 1000, "")
		require.Empty(t, out.String(), "nothing to tell yet")
		bars.Say("watcher %s is killed", "A")
		time.Sleep(2 * time.Second)
		bars.Set(oslo, 20, "gate 1")
		bars.Set(lima, 2000, "")
		bars.Done()
		require.Equal(t, "watcher A is killed\nLima 1,000 of 2,000, Oslo 10 of 10 (gate 1)\nLima 2,000 of 2,000, Oslo 10 of 10 (gate 1)\n", out.String())
	})
}

// TestBarsOnATerminal has bars drawn over each other, and lines above them.
func TestBarsOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		bars := NewBars(&out)
		bars.terminal = true
		lima, empty := bars.Add("Lima", 10), bars.Add("Köln", 0)
		time.Sleep(drawEvery)
		bars.Set(lima, 5, "half")
		bars.Set(lima, 6, "too soon to be drawn")
		bars.Say("a line")
		time.Sleep(drawEvery)
		bars.Set(empty, 0, "")
		half, full := strings.Repeat("█", 15)+strings.Repeat("░", 15), strings.Repeat("█", 30)
		most := strings.Repeat("█", 18) + strings.Repeat("░", 12)
		const erase = "\x1b[2A\x1b[J"
		require.Equal(t, "Lima "+half+" 5 of 10  half\nKöln "+full+" 0 of 0  \n"+erase+"a line\n"+
			"Lima "+most+" 6 of 10  too soon to be drawn\nKöln "+full+" 0 of 0  \n"+erase+
			"Lima "+most+" 6 of 10  too soon to be drawn\nKöln "+full+" 0 of 0  \n", out.String())
	})
}

func TestBarsAreShared(t *testing.T) {
	var out bytes.Buffer
	bars := NewBars(&out)
	bars.terminal = true
	var wg sync.WaitGroup
	for range 10 {
		n := bars.Add("run", 100)
		wg.Go(func() {
			for i := range int64(100) {
				bars.Set(n, i, "")
			}
			bars.Say("done")
		})
	}
	wg.Wait()
	bars.Done()
	require.Equal(t, 10, strings.Count(out.String(), "done\n"))
}
