package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// A paused consumer delivers nothing, and its pause is shown until it ends.
func TestConsumersPauseAndResume(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, numbers(1)...)
	r := f.run(t, "consumers", "pause", "S", "c")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "one of the flags in the group [for until] is required")
	r = f.run(t, "consumers", "pause", "S", "c", "--until", "2001-01-01T00:00:00Z")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "--until 2001-01-01T00:00:00Z is in the past; give a later time")

	r = f.run(t, "consumers", "pause", "S", "c", "--for", "1h")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.True(t, f.info(t).Paused)
	paused := jsonLines[struct {
		Stream, Consumer string
		Paused           bool
		PauseUntil       time.Time `json:"pause_until"`
	}](t, r.out)[0]
	require.Equal(t, "S c true", fmt.Sprint(paused.Stream, " ", paused.Consumer, " ", paused.Paused))
	at := paused.PauseUntil
	require.WithinDuration(t, time.Now().Add(time.Hour), at, time.Minute)
	require.Equal(t, cli.ExitNoMessages, f.run(t, "fetch", "S", "c", "--no-wait").code)
	require.Contains(t, f.run(t, "info", "S", "c").out, `"pause_until": "`+at.UTC().Format(time.RFC3339Nano)+`"`)
	out, errOut, stop := f.start(t, "info", "S", "c", "--watch")
	require.Eventually(t, func() bool {
		return strings.Contains(out.String(), "\npaused until  "+at.Local().Format(time.DateTime)+"\n")
	}, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, cli.ExitDone, stop(), errOut.String())

	r = f.run(t, "consumers", "resume", "S", "c", "--json")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, "{\"stream\":\"S\",\"consumer\":\"c\",\"paused\":false}\n", r.out)
	require.Equal(t, cli.ExitDone, f.run(t, "fetch", "S", "c").code)
	require.NotContains(t, f.run(t, "info", "S", "c").out, "pause_until")

	at = at.Add(time.Hour).Truncate(time.Second)
	r = f.run(t, "consumers", "pause", "S", "c", "--until", at.Format(time.RFC3339))
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.True(t, at.Equal(*f.info(t).Config.PauseUntil))
	r = f.run(t, "consumers", "pause", "S", "nobody", "--for", "1h")
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, `pause consumer "nobody" on stream "S"`)
}

func TestConsumersReset(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, numbers(4)...)
	require.Equal(t, cli.ExitDone, f.run(t, "fetch", "S", "c", "--count", "3").code)
	require.Equal(t, cli.ExitDone, f.run(t, "fetch", "S", "c", "--settle", "none").code)
	r := f.run(t, "consumers", "reset", "S", "c")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, `{"stream":"S","consumer":"c","reset_to":4}`+"\n", r.out)
	require.Equal(t, "4\n", f.run(t, "fetch", "S", "c", "--raw").out, "at once, not after AckWait")
	r = f.run(t, "consumers", "reset", "S", "c", "--to", "2", "--json")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.EqualValues(t, 2, jsonLines[struct {
		ResetTo uint64 `json:"reset_to"`
	}](t, r.out)[0].ResetTo)
	require.Equal(t, "2\n", f.run(t, "fetch", "S", "c", "--raw").out)

	r = f.run(t, "consumers", "reset", "S", "c", "--to", "6")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "--to 6 is beyond 5, the next message of the stream: messages that are published before 6 would not be delivered")
	require.Equal(t, "3\n", f.run(t, "fetch", "S", "c", "--raw").out, "nothing has changed")
	require.Equal(t, cli.ExitDone, f.run(t, "consumers", "reset", "S", "c", "--to", "5").code)
	require.Equal(t, cli.ExitNoMessages, f.run(t, "fetch", "S", "c", "--no-wait").code, "all are skipped")
}

func TestPublishLines(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	const lines = 20_000
	var in strings.Builder
	for i := range lines {
		fmt.Fprintf(&in, "line %d\n", i+1)
	}
	r := jetpullRunWith(t, strings.NewReader(in.String()), "publish", "--nats", f.url, "s.a", "--lines")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Contains(t, r.err, "20,000 published")
	s, err := f.js.Stream(t.Context(), "S")
	require.NoError(t, err)
	require.EqualValues(t, lines, s.CachedInfo().State.Msgs)
	m, err := s.GetMsg(t.Context(), 12_345)
	require.NoError(t, err)
	require.Equal(t, "line 12345", string(m.Data), "in order")

	for _, wrong := range [][]string{{"s.a", "body"}, {"s.a", "--count", "2"}, {"s.{{.Count}}"}, {"s.a", "--size", "5"}} {
		r := f.run(t, append(append([]string{"publish"}, wrong...), "--lines")...)
		require.Equal(t, cli.ExitUsage, r.code, "%q", wrong)
	}
	// A line that the stream refuses, and a subject without one.
	_, err = f.js.UpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, MaxMsgSize: 100})
	require.NoError(t, err)
	r = jetpullRunWith(t, strings.NewReader("short\n"+strings.Repeat("x", 200)+"\nshort\n"), "publish", "--nats", f.url, "s.a", "--lines")
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, "message 2: message size exceeds maximum allowed")
	r = jetpullRunWith(t, strings.NewReader("x\n"), "publish", "--nats", f.url, "nowhere", "--lines")
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, `no stream stores subject "`)
}

func TestPublishCreatesAStreamAlone(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	r := f.run(t, "publish", "new.a", "--create", "NEW", "--count", "0")
	require.Equal(t, result{}, r)
	s, err := f.js.Stream(t.Context(), "NEW")
	require.NoError(t, err)
	require.Zero(t, s.CachedInfo().State.LastSeq)
	require.Equal(t, cli.ExitUsage, f.run(t, "publish", "new.a", "--count", "0").code)
}

// A schedule is stored under its subject, and the stream publishes the message when it is due.
func TestPublishSchedule(t *testing.T) {
	t.Parallel()
	f := newFixture(t, jetstream.ConsumerConfig{})
	r := f.run(t, "publish", "due.now", "daily", "--at", time.Now().Add(2*time.Second).UTC().Format(time.RFC3339), "--schedule", "due.schedules.a",
		"--create", "DUE")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, "scheduled under due.schedules.a\n", r.err)
	s, err := f.js.Stream(t.Context(), "DUE")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		m, err := s.GetLastMsgForSubject(t.Context(), "due.now")
		return err == nil && string(m.Data) == "daily"
	}, time.Minute, 20*time.Millisecond)
	for _, flags := range [][]string{{"--every", "1h"}, {"--cron", "0 0 6 * * *", "--time-zone", "Europe/Berlin"}, {"--cron", "@daily"}} {
		r := f.run(t, append([]string{"publish", "due.now", "x", "--schedule", "due.schedules.b"}, flags...)...)
		require.Equal(t, cli.ExitDone, r.code, "%q: %s", flags, r.err)
	}

	for want, flags := range map[string][]string{
		`--at "tomorrow" is not a time such as`:    {"--at", "tomorrow", "--schedule", "s.x"},
		"--at 2001-01-01T00:00:00Z is in the past": {"--at", "2001-01-01T00:00:00Z", "--schedule", "s.x"},
		"exclude each other; give one of them":     {"--every", "1s", "--cron", "@daily", "--schedule", "s.x"},
		`--schedule "" is not a subject`:           {"--every", "1s"},
		`--schedule "s.a" is not a subject`:        {"--every", "1s", "--schedule", "s.a"},
		"need --at, --every or --cron":             {"--schedule", "s.x"},
		"--time-zone belongs to --cron":            {"--every", "1s", "--time-zone", "UTC", "--schedule", "s.x"},
		"a schedule is one message":                {"--every", "1s", "--schedule", "s.x", "--count", "2"},
	} {
		r := f.run(t, append([]string{"publish", "s.a", "x"}, flags...)...)
		require.Equal(t, cli.ExitUsage, r.code, "%q: %s", flags, r.err)
		require.Contains(t, r.err, want)
	}
	r = f.run(t, "publish", "s.a", "x", "--every", "1s", "--schedule", "s.x")
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, "the stream needs AllowMsgSchedules")
	for want, flags := range map[string][]string{
		`--cron "never" is not a pattern of six fields`:         {"--cron", "never"},
		`--time-zone "Mars" is not known to the server: give a`: {"--cron", "@daily", "--time-zone", "Mars"},
	} {
		r := f.run(t, append([]string{"publish", "due.now", "x", "--schedule", "due.schedules.c"}, flags...)...)
		require.Equal(t, cli.ExitUsage, r.code, "%q: %s", flags, r.err)
		require.Contains(t, r.err, want)
	}
}
