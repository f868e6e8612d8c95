package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

func TestInfo(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{
		FilterSubject: "s.a", MaxDeliver: 3,
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"g"},
	})
	f.publish(t, numbers(5)...)
	require.Equal(t, cli.ExitDone, f.run(t, "fetch", "S", "c", "--group", "g", "--settle", "none", "--count", "2").code)
	r := f.run(t, "info", "S", "c")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	for _, want := range []string{
		`(?m)^consumer +c on stream S$`,
		`(?m)^kind +pull, ack explicit, ack wait 30s, at most 1,000 unacknowledged, at most 3 deliveries$`,
		`(?m)^filter +s.a$`,
		`(?m)^pending +3$`,
		`(?m)^ack pending +2$`,
		`(?m)^delivered +2 \(stream sequence 2\), last .+ ago$`,
		`(?m)^ack floor +0 \(stream sequence 0\)$`,
		`(?m)^pin of g +nobody$`,
	} {
		require.Regexp(t, want, r.out)
	}
	r = f.run(t, "info", "S", "c", "--json")
	s := jsonLines[state](t, r.out)[0]
	require.EqualValues(t, 3, s.Pending)
	require.Equal(t, 2, s.AckPending)
	require.Empty(t, s.Pins[0].ID, "fetch has given it up")
	require.Nil(t, s.Rates, "one look tells no rate")
}

func TestInfoOfAPushConsumer(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	_, err := f.js.CreatePushConsumer(t.Context(), "S", jetstream.ConsumerConfig{
		Durable: "push", DeliverSubject: "to.me", AckPolicy: jetstream.AckNonePolicy,
	})
	require.NoError(t, err)
	r := f.run(t, "info", "S", "push")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Regexp(t, `(?m)^kind +push to to.me, ack none$`, r.out)
}

func TestInfoOfWhatIsNotThere(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	for _, args := range [][]string{{"info", "nowhere", "c"}, {"info", "S", "nobody"}, {"info", "S", "nobody", "--watch"}} {
		r := f.run(t, args...)
		require.Equal(t, cli.ExitError, r.code, args)
		require.Contains(t, r.err, "not found", args)
	}
}

func TestWatch(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, numbers(7)...)
	// The server counts what is published a moment later.
	require.Eventually(t, func() bool {
		c, err := f.js.Consumer(t.Context(), "S", "c")
		return err == nil && c.CachedInfo().NumPending == 7
	}, 10*time.Second, 5*time.Millisecond)
	r := f.run(t, "info", "S", "c", "--watch", "--interval", "100ms", "--count", "3")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	require.Len(t, lines, 3)
	require.Regexp(t, `^\d\d:\d\d:\d\d pending 7, ack pending 0, redelivered 0, waiting pulls 0$`, lines[0])
	require.Regexp(t, `pending 7, .*delivered 0/s, acked 0/s, pending \+0/s$`, lines[1])
}

func TestWatchTellsOfPinsAndOfTheEnd(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"g"},
	})
	f.publish(t, "one")
	out, errOut, stop := f.start(t, "info", "S", "c", "--watch", "--interval", "100ms", "--json")
	shows := func(what string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(out.String(), what) }, 10*time.Second, 5*time.Millisecond,
			"no %s in\n%s%s", what, out, errOut)
	}
	shows(`"pending":1`)
	// It listens for the news of pins beside its looks.
	require.Eventually(t, func() bool {
		return f.srv.Unwrap().GlobalAccount().Interest("$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.S.c") > 0
	}, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, cli.ExitDone, f.run(t, "fetch", "S", "c", "--group", "g").code)
	shows(`{"event":"pinned","group":"g","id":"`)
	shows(`"rates":{"delivered":`)
	require.Equal(t, cli.ExitDone, f.run(t, "unpin", "S", "c").code)
	shows(`{"event":"unpinned","group":"g","reason":"admin"`)
	require.NoError(t, f.js.DeleteConsumer(t.Context(), "S", "c"))
	require.Eventually(t, func() bool { return strings.Contains(errOut.String(), "not found") }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, cli.ExitError, stop())
}

func TestWatchEndsInGoodOrder(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	out, _, stop := f.start(t, "info", "S", "c", "--watch")
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "pending 0") }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, cli.ExitDone, stop())
}

func TestRates(t *testing.T) {
	at := func(seconds, delivered, acked, pending uint64) state {
		return state{
			Time:      time.Unix(int64(seconds), 0),
			Delivered: position{Consumer: delivered}, AckFloor: position{Consumer: acked}, Pending: pending,
		}
	}
	require.Equal(t, &rates{Delivered: 50, Acked: 40, Pending: -30}, between(at(10, 100, 100, 90), at(12, 200, 180, 30)))
	require.Nil(t, between(at(10, 1, 1, 1), at(10, 2, 2, 2)), "no time has passed")
	require.Nil(t, between(at(10, 100, 100, 0), at(11, 5, 5, 0)), "it is another consumer")
}

func TestScreenIsDrawnInPlace(t *testing.T) {
	var out bytes.Buffer
	v := &screenView{out: &out}
	info := &jetstream.ConsumerInfo{Name: "c", Stream: "S", Config: jetstream.ConsumerConfig{Durable: "c"}}
	require.NoError(t, v.problem(errText("jetpull: too early to be drawn")))
	require.Empty(t, out.String())
	require.NoError(t, v.show(info, observe(info, time.Now())))
	first := out.String()
	require.NotContains(t, first, "\x1b")
	require.Contains(t, first, " too early to be drawn\n")
	out.Reset()
	require.NoError(t, v.advisory(jetpull.PinAdvisory{Group: "g", Reason: "timeout", Time: time.Now()}))
	second := out.String()
	rest, ok := strings.CutPrefix(second, fmt.Sprintf("\x1b[%dA\x1b[J", strings.Count(first, "\n")))
	require.True(t, ok, "%q", second)
	require.Equal(t, strings.Count(first, "\n")+1, strings.Count(rest, "\n"), "one event more")
	for range 3 * eventsShown {
		require.NoError(t, v.problem(errText("again")))
	}
	require.Len(t, v.last, eventsShown)
}

func TestClip(t *testing.T) {
	require.Equal(t, "größe\nlong…\n", clip("größe\nlonger than that\n", 5))
	require.Equal(t, "as it is\n", clip("as it is\n", 0))
	require.Equal(t, "lo…\nab\n", clip("long\nab\n", 3))
}

func TestAgo(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for d, want := range map[time.Duration]string{
		1234 * time.Millisecond: "1.2s ago", 75*time.Second + 1: "1m15s ago",
		3*time.Hour + 10*time.Second: "3h0m0s ago", -time.Second: "0s ago",
	} {
		require.Equal(t, want, ago(now.Add(-d), now))
	}
}

func TestBench(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	r := f.run(t, "bench", "--messages", "200", "--rounds", "1", "--memory", "--batch", "50")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Regexp(t, `(?m)^Next, Ack +20 +[\d,]+ +[\d,]+ +\d+\.\d\d$`, r.out)
	require.Regexp(t, `(?m)^Fetch\(50\), Ack +200 `, r.out)
	require.Regexp(t, `(?m)^Consume, Ack +200 `, r.out)
	require.Contains(t, r.err, "publish: 200 in ")

	account, err := f.js.AccountInfo(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, account.Streams, "its stream is removed")
}

func TestBenchBringsItsOwnServer(t *testing.T) {
	r := jetpullRun(t, "bench", "--messages", "50", "--rounds", "1", "--json")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Empty(t, r.err)
	all := jsonLines[benchResult](t, r.out)
	require.Len(t, all, 3)
	for _, c := range all {
		require.Positive(t, c.Jetpull)
		require.InDelta(t, c.Jetpull/c.NATS, c.Ratio, 1e-6)
	}
}

func TestMedian(t *testing.T) {
	require.EqualValues(t, 3, median([]time.Duration{9, 1, 3}))
	require.EqualValues(t, 2, median([]time.Duration{9, 1, 3, 1}))
}
