package test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console"
)

// shuffle gives the consumers of an account other numbers, so that a list by pending messages has another order. One of them has n.
func shuffle(fake *fakeNATS, n uint64) {
	fake.set(func() {
		for i, c := range fake.consumers {
			next := *c
			next.NumPending, next.NumAckPending = uint64(rand.IntN(900_000)), rand.IntN(100)
			if i == 0 {
				next.NumPending = n
			}
			fake.consumers[i] = &next
		}
	})
}

// The rows of a live list do not move while the pointer is on them, and what changes moves nothing else on the page.
func TestRowsDoNotMoveUnderThePointer(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	fake := many(60)
	for i := range fake.consumers {
		fake.consumers[i].Config = jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1000}
	}
	shuffle(fake, 999_000)
	b := openTab(t, serve(t, console.Config{NATS: fake}), wide)
	b.open("consumers?sort=pending&desc=1")
	b.eventually("999,000")
	shifts := `(() => {
		window.shifts = [];
		new PerformanceObserver(l => l.getEntries().forEach(e => window.shifts.push([e.value, e.sources.map(s => s.node?.outerHTML?.slice(0, 90) ?? s.node?.textContent)])))
			.observe({type: "layout-shift"});
	})()`
	evaluate[any](b, shifts)
	n := uint64(999_000)
	for range 16 {
		n++
		shuffle(fake, n)
		b.eventually(fmt.Sprintf("999,%03d", n-999_000))
	}
	total := evaluate[float64](b, `window.shifts.reduce((sum, s) => sum + s[0], 0)`)
	t.Logf("the layout shifted by %.4f", total)
	require.LessOrEqual(t, total, 0.05, "%v", evaluate[any](b, `window.shifts`))

	names := func() []string {
		return evaluate[[]string](b, `[...document.querySelectorAll("tbody td:first-child")].map(e => e.textContent)`)
	}
	command(b, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseMoved, X: 200, Y: 400})
	before := names()
	for range 3 {
		n++
		shuffle(fake, n)
		b.eventually("The list has changed: show it now")
	}
	require.Equal(t, before, names(), "the pointer is on the list")
	b.press("The list has changed: show it now")
	b.eventually(fmt.Sprintf("999,%03d", n-999_000))
	require.NotEqual(t, before, names())
	b.gone("The list has changed")
}
