package main

import (
	"path/filepath"
	"regexp"
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
		`"consumer": "c"`, `"ack_policy": "explicit"`, `"ack_wait": 30,`, `"max_ack_pending": 1000,`, `"max_deliver": 3,`, `"filter": \[\s+"s.a"\s`,
		`"pending": 3,`, `"ack_pending": 2,`, `"delivered": \{\s+"consumer_seq": \d+,\s+"stream_seq": 2\b`, `"ack_floor": \{\s+"consumer_seq": 0,\s+"stream_seq": 0\b`,
		`"group": "g"`,
	} {
		require.Regexp(t, want, r.out)
	}
	r = f.run(t, "info", "S", "c", "--json")
	s := jsonLines[struct {
		Pending    uint64
		AckPending int `json:"ack_pending"`
		Pins       []struct{ ID string }
		Rates      *struct{}
	}](t, r.out)[0]
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
	require.Regexp(t, `"push_to": "to.me",\s+"ack_policy": "none"`, r.out)
}

func TestInfoOfWhatIsNotThere(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	for _, args := range [][]string{{"info", "nowhere", "c"}, {"info", "S", "nobody"}, {"info", "S", "nobody", "--watch"}} {
		r := f.run(t, args...)
		require.Equal(t, cli.ExitError, r.code, args)
		require.Contains(t, r.err, "not found", args)
	}
}

// TestReadingMakesNoStore has a folder that is not there, in which nothing could be found.
func TestReadingMakesNoStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	for _, line := range []string{"info S c", "unpin S c", "dlq ls D", "dlq purge D --all"} {
		r := jetpullRun(t, append(strings.Fields(line), "--embedded", dir)...)
		require.Equal(t, cli.ExitError, r.code, line)
		require.Contains(t, r.err, "--embedded "+dir+": the folder does not exist; give the store of a server that has run", line)
		require.NoDirExists(t, dir)
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
	out, errOut, stop := f.start(t, "info", "S", "c", "--watch", "--interval", "100ms")
	const looks = `(?m)^\d\d:\d\d:\d\d  S > c
delivered     0/s
acknowledged  0/s
pending       7
ack pending   0 of .+
redelivered   0
waiting pulls 0
(.+
){3}pending       7  \+0/s$`
	require.Eventually(t, func() bool { return regexp.MustCompile(looks).MatchString(out.String()) }, 10*time.Second, 5*time.Millisecond, out)
	require.Equal(t, cli.ExitDone, stop(), errOut)
}

func TestWatchShowsPinsAndTheEnd(t *testing.T) {
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
	shows(`"pins":[{"group":"g"}]`)
	sub, err := jetpull.Subscribe(t.Context(), f.js, "S", "c", jetpull.Group("g"))
	require.NoError(t, err)
	m, err := sub.Next(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Ack())
	shows(`"pins":[{"group":"g","id":"`)
	shows(`"rates":{"delivered":`)
	require.NoError(t, sub.Close(t.Context()))
	require.NoError(t, f.js.DeleteConsumer(t.Context(), "S", "c"))
	require.Eventually(t, func() bool { return strings.Contains(errOut.String(), "not found") }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, cli.ExitError, stop())
}

func TestWatchEndsInGoodOrder(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	out, _, stop := f.start(t, "info", "S", "c", "--watch")
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "\npending       0\n") }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, cli.ExitDone, stop())
}
