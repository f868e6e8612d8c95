package state

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/view"
)

// row is a row of the table of an object.
type row struct {
	name  string
	got   State
	level Level
	word  string
	says  string
}

func check(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			require.Equal(t, r.level, r.got.Level, r.got.Sentence)
			require.Equal(t, r.word, r.got.Word)
			require.Contains(t, r.got.Sentence, r.says)
		})
	}
}

func TestConsumer(t *testing.T) {
	info := func(pending uint64, waiting int) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{NumPending: pending, NumWaiting: waiting}
	}
	of := func(change func(*Consumer)) State {
		c := Consumer{ConsumerInfo: info(338, 1), Rate: 10, Lag: time.Second, Next: time.Unix(60, 0)}
		c.NumAckPending, c.Config.MaxAckPending = 1, 1000
		change(&c)
		return c.Of()
	}
	begin := time.Unix(0, 0)
	check(t, []row{
		{"works", of(func(*Consumer) {}), Green, "working", "338 messages wait, the oldest stored 1970-01-01T00:01:00.000Z."},
		{"idle", Consumer{ConsumerInfo: info(0, 1)}.Of(), Idle, "idle", "Nothing waits"},
		{"idle without a client", Consumer{ConsumerInfo: info(0, 0)}.Of(), Idle, "idle, no worker", "no client pulls"},
		{"no leader", of(func(c *Consumer) { c.Cluster = &jetstream.ClusterInfo{} }), Red, "no leader", "delivers nothing"},
		{"no client pulls and messages wait", Consumer{ConsumerInfo: info(3, 0)}.Of(), Red, "no worker", "3 messages wait."},
		{"nobody subscribes and a message waits", of(func(c *Consumer) { c.NumPending, c.Config.DeliverSubject, c.Next = 1, "to", time.Time{} }), Red, "no subscriber", "1 message waits"},
		{
			"the oldest is older than the limit and the backlog grows", of(func(c *Consumer) { c.Lag, c.Growth = 4*time.Minute, Grows }), Red, "falls behind",
			"The limit is 2 min",
		},
		{"the same within its limit", of(func(c *Consumer) {
			c.Lag, c.Growth, c.Config.Metadata = 4*time.Minute, Grows, map[string]string{MetadataLag: "5m"}
		}), Green, "working", ""},
		{"the backlog grows for 5 min", of(func(c *Consumer) { c.Growth = GrowsLong }), Amber, "backlog grows", "5 min"},
		{"the backlog ends in more than an hour", of(func(c *Consumer) { c.Rate = 0.09 }), Amber, "slow", "more than 1 h"},
		{"it ends in less than an hour", of(func(c *Consumer) { c.Rate = 0.1 }), Green, "working", ""},
		{"at MaxAckPending", of(func(c *Consumer) { c.NumAckPending = 1000 }), Amber, "at its limit", "1000 messages are delivered"},
		{"paused", of(func(c *Consumer) { c.Paused, c.Config.PauseUntil = true, &begin }), Amber, "paused", "Paused, and resumes 1970-01-01T00:00:00.000Z; 338 messages wait, the oldest stored"},
		{"older than the limit, and not known to grow", of(func(c *Consumer) { c.Lag = 3 * time.Minute }), Amber, "behind", "The limit is 2 min"},
		{"older than the limit, and the backlog falls", of(func(c *Consumer) { c.Lag, c.Growth = 3*time.Minute, Falls }), Green, "working", ""},
		{"redelivering", of(func(c *Consumer) { c.NumRedelivered = 2 }), Amber, "redelivering", "2 unacknowledged messages are redelivered"},
		{"how long the oldest waits is not known", of(func(c *Consumer) { c.Lag = NotKnown }), Unknown, "not known", "not known now"},
		{"red though the oldest is not known", Consumer{ConsumerInfo: info(1, 0), Lag: NotKnown}.Of(), Red, "no worker", "1 message waits."},
	})
}

func TestLagLimit(t *testing.T) {
	require.Equal(t, 5*time.Minute, LagLimit(map[string]string{MetadataLag: "5m"}))
	for _, wrong := range []string{"", "x", "-5m", "0s"} {
		require.Equal(t, DefaultLag, LagLimit(map[string]string{MetadataLag: wrong}), wrong)
	}
}

func TestSet(t *testing.T) {
	works, bad := State{Green, "working", ""}, State{Red, "no worker", "No client pulls."}
	partitions := func(states ...State) (all []Partition) {
		for i, s := range states {
			all = append(all, Partition{Number: i, Consumer: s})
		}
		return all
	}
	free := func(d time.Duration) []Partition {
		return []Partition{{Consumer: works}, {Number: 7, Free: d, Consumer: works}}
	}
	check(t, []row{
		{"works", Set{Partitions: partitions(works, works), Counts: []int{1, 1}}.Of(), Green, "working", "Each partition has an owner"},
		{"as its worst partition", Set{Partitions: partitions(works, bad), Counts: []int{1, 1}}.Of(), Red, "no worker", "Partition 1: No client pulls."},
		{"as its worst partition, amber", Set{Partitions: partitions(works, State{Amber, "slow", "S."}), Counts: []int{1, 1}}.Of(), Amber, "slow", "S."},
		{
			"as its worst partition, not known", Set{Partitions: partitions(works, State{Unknown, "not known", "S."}), Counts: []int{2}}.Of(), Unknown,
			"not known", "Partition 1",
		},
		{
			"without an owner for longer than the TTL", Set{Partitions: free(11 * time.Second), Counts: []int{1}, TTL: 10 * time.Second}.Of(), Red, "no owner",
			"Partition 7",
		},
		{"without an owner within the TTL", Set{Partitions: free(9 * time.Second), Counts: []int{1}, TTL: 10 * time.Second}.Of(), Amber, "changing", "1 partition"},
		{"no member, and messages wait", Set{Partitions: free(1), Pending: 1}.Of(), Red, "no member", "1 message waits"},
		{"no member", Set{Partitions: free(1)}.Of(), Idle, "no member", "Nothing waits"},
		{"counts differ by more than one", Set{Partitions: partitions(works), Counts: []int{3, 1}}.Of(), Amber, "uneven", "3 partitions, and another has 1"},
		{"counts differ by one", Set{Partitions: partitions(works), Counts: []int{2, 1}}.Of(), Green, "working", ""},
		{"not known", Set{Err: errors.New("no answer"), Counts: []int{1}}.Of(), Unknown, "not known", "no answer"},
	})
}

func TestReceiver(t *testing.T) {
	good := Receiver{Noun: "message", Gone: "failed message", Known: true, Backlog: 2, InFlight: 1}
	of := func(change func(*Receiver)) State {
		r := good
		change(&r)
		return r.Of()
	}
	check(t, []row{
		{"works", good.Of(), Green, "working", "1 message is in flight; 2 messages wait"},
		{"idle", Receiver{Known: true}.Of(), Idle, "idle", ""},
		{"failed messages or dead jobs", of(func(r *Receiver) { r.Failed = 3 }), Red, "failed messages", "3 failed messages. Requeue them"},
		{"failed messages, and paused", of(func(r *Receiver) { r.Failed, r.Paused = 3, "Paused by ada" }), Red, "failed messages", "gone. Paused by ada."},
		{"disabled", of(func(r *Receiver) { r.Disabled = "It answered 410" }), Red, "disabled", "It answered 410; 2 messages wait."},
		{"each of the last 5 calls failed", of(func(r *Receiver) { r.Refused = 5 }), Red, "failing", "last 5 calls"},
		{"4 calls failed", of(func(r *Receiver) { r.Refused = 4 }), Green, "working", ""},
		{"breaker open", of(func(r *Receiver) { r.Breaker = "open" }), Amber, "breaker open", ""},
		{"breaker of the relay half open", of(func(r *Receiver) { r.Breaker = "half_open" }), Amber, "probing", ""},
		{"breaker of the broker half open", of(func(r *Receiver) { r.Breaker = "half-open" }), Amber, "probing", ""},
		{"window full", of(func(r *Receiver) { r.Full = "10 in 1 s" }), Amber, "at its limit", "10 in 1 s; 2 messages wait."},
		{"window full and nothing waits", Receiver{Known: true, Full: "x"}.Of(), Idle, "idle", ""},
		{"paused", of(func(r *Receiver) { r.Paused = "Paused by an operator" }), Amber, "paused by operator", "Paused by an operator; 2"},
		{"not known", of(func(r *Receiver) { r.Known = false }), Unknown, "not known", ""},
		{"failed messages are not known", of(func(r *Receiver) { r.Failed = NotKnown }), Unknown, "not known", ""},
		{"calls are not known", of(func(r *Receiver) { r.Refused = NotKnown }), Unknown, "not known", ""},
		{"failed messages though the rest is not known", of(func(r *Receiver) { r.Known, r.Failed = false, 1 }), Red, "failed messages", ""},
	})
}

func TestLetters(t *testing.T) {
	check(t, []row{
		{"none", Letters{}.Of(), Green, "none", "No dead letter was found."},
		{"none among those that were sampled", Letters{Sampled: 2}.Of(), Idle, "none", "found. In 2 streams the first, the last and some"},
		{"all are looked at, and others were sampled", Letters{Seen: 4, Sampled: 1}.Of(), Idle, "looked at", "4 dead letters. In 1 stream the"},
		{"any that nobody has looked at", Letters{Unseen: 1312, Seen: 4}.Of(), Red, "dead letters", "1,312 dead letters"},
		{"more than were counted", Letters{Unseen: 10_000, More: true}.Of(), Red, "dead letters", "10,000+"},
		{"all are looked at", Letters{Seen: 4}.Of(), Idle, "looked at", "all of 4 dead letters"},
		{"none among those that were read", Letters{More: true}.Of(), Unknown, "not known", ""},
	})
}

func TestFeed(t *testing.T) {
	check(t, []row{
		{"works", Feed{Known: true, Ready: 2}.Of(), Green, "working", "2 items are ready"},
		{"idle", Feed{Known: true}.Of(), Idle, "idle", ""},
		{"Failed items", Feed{Known: true, Failed: 3, Blocked: 1}.Of(), Red, "blocked", "1 partition is held by 3 failed items"},
		{"a lease ended while items wait", Feed{Known: true, Ended: 1, Ready: 1}.Of(), Red, "lease ended", "1 partition"},
		{"the oldest is ready for long", Feed{Known: true, Ready: 1, Oldest: 2 * time.Minute}.Of(), Amber, "slow", "1 item is ready"},
		{"not known", Feed{Ready: 1}.Of(), Unknown, "not known", ""},
	})
}

func TestStream(t *testing.T) {
	type replica = jetstream.PeerInfo
	of := func(replicas ...*replica) State {
		return Stream(&jetstream.ClusterInfo{Leader: "n1", Replicas: replicas})
	}
	current, offline := &replica{Name: "n2", Current: true}, &replica{Name: "n3", Offline: true, Lag: 9999}
	check(t, []row{
		{"one server", Stream(nil), Green, "works", "It is on one server."},
		{"replicated", of(current, current), Green, "works", "Server n1 leads it, with 2 replicas."},
		{"no leader", Stream(&jetstream.ClusterInfo{Replicas: []*replica{offline}}), Red, "no leader", "stores and delivers nothing"},
		{"offline", of(current, offline), Amber, "replica offline", "Server n3 is offline, so 2 of 3 servers have the stream."},
		{"behind", of(current, &replica{Name: "n3", Lag: 1000}), Amber, "replica behind", "Server n3 is 1,000 operations behind"},
		{"silent", of(&replica{Name: "n3", Active: 10 * time.Second}), Amber, "replica behind", "n3 is 0 operations behind, and was last seen 10 s ago"},
		{"as any replica under load", of(&replica{Name: "n3", Lag: 999, Active: time.Second}), Green, "works", "1 replica."},
		{"current, whatever it lags", of(&replica{Name: "n3", Current: true, Lag: 5000}), Green, "works", ""},
	})
}

func TestAccount(t *testing.T) {
	of := func(used uint64, limit int64) State {
		return Account{Uses: []Use{{Noun: "storage", Used: used, Limit: limit, Bytes: true}, {Noun: "streams", Used: 3, Limit: -1}}}.Of()
	}
	check(t, []row{
		{"no answer", Account{Err: errors.New("nats: timeout")}.Of(), Unknown, "not known", "is not known now: nats: timeout"},
		{"no limits", of(1<<40, -1), Green, "within limits", "The account has no limits."},
		{"within", of(799, 1000), Green, "within limits", "within its limits"},
		{"near", of(800<<10, 1000<<10), Amber, "near a limit", "uses 800.0 KiB of 1000.0 KiB of storage"},
		{"at", of(1000, 1000), Red, "at a limit", "uses 1,000 bytes of 1,000 bytes of storage"},
		{"the worst counts", Account{Uses: []Use{{"consumers", 9, 10, false}, {"streams", 3, 3, false}}}.Of(), Red, "at a limit", "uses 3 of 3 streams"},
	})
}

func TestSource(t *testing.T) {
	now := time.Unix(1000, 0)
	check(t, []row{
		{"answers", Source{Name: "NATS", Answered: now}.Of(now), Green, "answers", "NATS"},
		{"away for 10 s", Source{Answered: now, Failing: now.Add(-10 * time.Second)}.Of(now), Red, "away", "does not answer. The first request without an answer began 1970"},
		{"away for 10 s since the start", Source{Failing: now.Add(-10 * time.Second)}.Of(now), Red, "away", ""},
		{"away for 9 s", Source{Answered: now, Failing: now.Add(-9 * time.Second)}.Of(now), Amber, "late", "last request"},
		{"answered late", Source{Answered: now, Took: 2 * time.Second}.Of(now), Amber, "late", "took 2 s"},
		{"has not answered yet", Source{}.Of(now), Unknown, "not known", "yet"},
	})
}

func TestSum(t *testing.T) {
	red, unknown, amber, green := State{Level: Red}, State{Level: Unknown}, State{Level: Amber}, State{Level: Green}
	check(t, []row{
		{"none", Sum("consumer", nil), Idle, "none", "There is no consumer."},
		{"healthy", Sum("consumer", []State{green, {Level: Idle}}), Green, "healthy", "all of 2 consumers"},
		{
			"red", Sum("consumer", []State{red, amber, unknown, green}), Red, "in trouble",
			"1 of 4 consumers is in trouble. 1 more should be looked at. The state of 1 is not known now.",
		},
		{"amber", Sum("consumer", []State{amber, green, unknown}), Amber, "look at it", "1 of 3 consumers should be looked at. The state of 1"},
		{"not known is not healthy", Sum("consumer", []State{green, unknown}), Unknown, "not known", "The state of 1 of 2 consumers"},
	})
	require.Equal(t, view.Bad, Red.Tone())
	require.Equal(t, view.Muted, Unknown.Tone())
	require.True(t, unknown.Trouble())
	require.False(t, green.Trouble())
}

func TestGrowth(t *testing.T) {
	const step = 10 * time.Second
	observe := func(n int, backlog func(i int) uint64) Growth {
		var trend Trend
		for i := range n {
			trend = trend.Next(time.Unix(0, 0).Add(time.Duration(i)*step), backlog(i))
		}
		return trend.Growth()
	}
	growing := func(i int) uint64 { return uint64(100 + i) }
	require.Equal(t, GrowthUnknown, Trend{}.Growth())
	require.Equal(t, GrowthUnknown, observe(6, growing), "50 s")
	require.Equal(t, Grows, observe(7, growing), "1 min")
	require.Equal(t, Grows, observe(30, growing), "4 min 50 s")
	require.Equal(t, GrowsLong, observe(31, growing), "5 min")
	require.Equal(t, GrowsLong, observe(100, growing))
	require.Equal(t, Falls, observe(31, func(i int) uint64 { return uint64(100 - i) }))
	require.Equal(t, Steady, observe(31, func(int) uint64 { return 7 }))
	require.Equal(t, Steady, observe(60, func(i int) uint64 { return uint64(i%2) * 500 }), "batches come and go")
	require.Equal(t, GrowsLong, observe(60, func(i int) uint64 { return uint64(i%2)*50 + uint64(i) }), "more of each batch stays")
	var trend Trend
	for i := range 31 {
		trend = trend.Next(time.Unix(0, 0).Add(time.Duration(i)*step), growing(i))
	}
	require.Equal(t, GrowthUnknown, trend.Next(time.Unix(0, 0).Add(time.Hour), 1000).Growth(), "nobody observed the hour")
}
