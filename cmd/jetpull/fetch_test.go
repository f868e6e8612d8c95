package main

import (
	"context"
	"encoding/base64"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/pulling"
)

func TestFetchPrintsAndAcknowledges(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, "first", "second", "third")
	r := f.run(t, "fetch", "S", "c", "--count", "2")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, `[1] s.a: first
    X-Kind: one
    X-Kind: two
[2] s.a: second
    X-Kind: one
    X-Kind: two
`, r.out)
	info := f.info(t)
	require.EqualValues(t, 2, info.AckFloor.Stream, "acknowledged when the command ends")
	require.EqualValues(t, 1, info.NumPending)

	r = f.run(t, "fetch", "S", "c", "--count", "2", "--raw")
	require.Equal(t, result{cli.ExitDone, "third\n", ""}, r)
}

func TestFetchJSON(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, `{"html":"<b>"}`, "\xff\x00")
	r := f.run(t, "fetch", "S", "c", "--count", "2", "--json")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	all := jsonLines[pulling.Message](t, r.out)
	require.Len(t, all, 2)
	require.Equal(t, `{"html":"<b>"}`, *all[0].Data)
	require.Nil(t, all[0].DataBase64)
	require.Equal(t, "S", all[0].Stream)
	require.Equal(t, "c", all[0].Consumer)
	require.Equal(t, "s.a", all[0].Subject)
	require.EqualValues(t, 1, all[0].StreamSeq)
	require.EqualValues(t, 1, all[0].ConsumerSeq)
	require.EqualValues(t, 1, all[0].Delivered)
	require.EqualValues(t, 1, all[0].Pending)
	require.WithinDuration(t, time.Now(), all[0].Time, time.Minute)
	require.Equal(t, []string{"one", "two"}, all[0].Headers["X-Kind"])
	require.Nil(t, all[1].Data)
	raw, err := base64.StdEncoding.DecodeString(*all[1].DataBase64)
	require.NoError(t, err)
	require.Equal(t, "\xff\x00", string(raw))
}

func TestFetchExitCodes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, jetstream.ConsumerConfig{})
	require.Equal(t, cli.ExitNoMessages, f.run(t, "fetch", "S", "c", "--no-wait").code)
	require.Equal(t, cli.ExitTimeout, f.run(t, "fetch", "S", "c", "--wait", "200ms").code)
	require.Equal(t, cli.ExitUsage, f.run(t, "fetch", "S", "c", "--count", "0").code)
	require.Equal(t, cli.ExitUsage, f.run(t, "fetch", "S", "c", "--group", "g").code, "the consumer has no groups")
	require.Equal(t, cli.ExitError, f.run(t, "fetch", "nowhere", "c").code)

	f.publish(t, "one")
	r := f.run(t, "fetch", "S", "c", "--count", "3", "--fill", "--wait", "1s")
	require.Equal(t, cli.ExitTimeout, r.code)
	require.Contains(t, r.err, "1 of 3 came within 1s")
	require.Contains(t, r.out, "[1] s.a: one\n", "what came is not lost")
	f.settled(t, 1)
}

func TestFetchSettles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		settle string
		again  bool // the next fetch gets it again
	}{{"nak", true}, {"term", false}, {"ack", false}} {
		t.Run(tt.settle, func(t *testing.T) {
			f := newFixture(t, jetstream.ConsumerConfig{AckWait: time.Minute})
			f.publish(t, "one")
			require.Equal(t, cli.ExitDone, f.run(t, "fetch", "S", "c", "--settle", tt.settle).code)
			if !tt.again {
				r := f.run(t, "fetch", "S", "c", "--wait", "300ms")
				require.Equal(t, cli.ExitTimeout, r.code, r.out)
				return
			}
			r := f.run(t, "fetch", "S", "c", "--wait", "10s")
			require.Equal(t, cli.ExitDone, r.code, r.err)
			require.Contains(t, r.out, "[1] s.a (delivery 2): one\n")
		})
	}
}

func TestFetchLeavesUnsettled(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	f.publish(t, "one")
	require.Equal(t, cli.ExitDone, f.run(t, "fetch", "S", "c", "--settle", "none").code)
	require.Equal(t, 1, f.info(t).NumAckPending)
}

func TestFetchWithAckPolicyNone(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	f.publish(t, "one")
	require.Equal(t, result{cli.ExitDone, "one\n", ""}, f.run(t, "fetch", "S", "c", "--raw"))
}

func TestFetchHandsBackWhatItCannotPrint(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	f.publish(t, "one", "two", "three")
	var errOut buffer
	code := execute(t.Context(), []string{"fetch", "S", "c", "--count", "3", "--nats", f.url}, nil, &closing{after: 1}, &errOut)
	require.Equal(t, cli.ExitError, code)
	require.Contains(t, errOut.String(), "the reader has gone")
	require.EqualValues(t, 1, f.info(t).AckFloor.Stream, "what was printed is settled")
	r := f.run(t, "fetch", "S", "c", "--count", "2", "--raw", "--fill", "--wait", "5s")
	require.Equal(t, result{cli.ExitDone, "two\nthree\n", ""}, r, "what was not comes again, without waiting for AckWait")
}

// closing is an output whose reader goes away after some writes.
type closing struct{ after int }

func (c *closing) Write(p []byte) (int, error) {
	if c.after--; c.after < 0 {
		return 0, errGone
	}
	return len(p), nil
}

func TestFetchInterrupted(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	_, errOut, stop := f.start(t, "fetch", "S", "c", "--wait", "1m")
	require.Eventually(t, func() bool { return f.info(t).NumWaiting > 0 }, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, cli.ExitInterrupted, stop(), errOut.String())
	require.Equal(t, "jetpull: interrupted\n", errOut.String())
}

func TestFetchInAGroup(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{
		PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{"g"},
	})
	f.publish(t, "one", "two")
	require.Equal(t, cli.ExitUsage, f.run(t, "fetch", "S", "c").code)
	require.Equal(t, cli.ExitTimeout, f.run(t, "fetch", "S", "c", "--group", "g", "--min-pending", "3", "--wait", "300ms").code)
	require.Equal(t, cli.ExitDone, f.run(t, "fetch", "S", "c", "--group", "g", "--min-pending", "2").code)
	require.Equal(t, cli.ExitUsage, f.run(t, "fetch", "S", "c", "--group", "g", "--priority", "1").code)
}

func TestCreateMakesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	args := []string{"fetch", "NEW", "worker", "--embedded", dir, "--no-wait"}
	require.Equal(t, cli.ExitError, jetpullRun(t, args...).code, "there is no stream")
	args = append(args, "--create", "new.a,new.b")
	for range 2 {
		r := jetpullRun(t, args...)
		require.Equal(t, cli.ExitNoMessages, r.code, r.err)
	}
	r := jetpullRun(t, "info", "NEW", "worker", "--embedded", dir)
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Regexp(t, `"stream": "NEW",\s+"consumer": "worker",`, r.out)
}

// TestEmbeddedPortTaken checks that a port of another program is reported once, with what to do.
func TestEmbeddedPortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	r := jetpullRun(t, "fetch", "S", "c", "--embedded", t.TempDir(), "--embedded-port", port)
	require.Equal(t, cli.ExitError, r.code)
	require.Equal(t, 1, strings.Count(r.err, "in use"), r.err)
	require.Contains(t, r.err, "choose another --embedded-port, or 0 for any that is free")
}

// TestEmbeddedPortIsNotBlamed sees that no other port is advised where the store is what is wrong.
func TestEmbeddedPortIsNotBlamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	r := jetpullRun(t, "fetch", "S", "c", "--embedded", file, "--embedded-port", "4222")
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, "make the store folder")
	require.NotContains(t, r.err, "--embedded-port")
}

func TestUnpin(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"g"},
	})
	f.publish(t, "one")
	sub, err := jetpull.Subscribe(t.Context(), f.js, "S", "c", jetpull.Group("g"))
	require.NoError(t, err)
	defer func() { require.NoError(t, sub.Close(context.WithoutCancel(t.Context()))) }()
	m, err := sub.Next(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Ack())
	id := f.info(t).PriorityGroups[0].PinnedClientID
	require.NotEmpty(t, id)

	r := f.run(t, "unpin", "S", "c")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Contains(t, r.out, `"unpinned":"`+id)
	require.Empty(t, f.info(t).PriorityGroups[0].PinnedClientID)

	r = f.run(t, "unpin", "S", "c", "g", "--json")
	require.JSONEq(t, `{"stream":"S","consumer":"c","group":"g"}`, r.out)
	r = f.run(t, "unpin", "S", "c", "other")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, `no group "other"; it has g`)
}

func TestUnpinWithoutPins(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	r := f.run(t, "unpin", "S", "c")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "has no pins")
}

func TestExitCodeOfAnOuterDeadline(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	require.Equal(t, cli.ExitTimeout, cli.ExitCode(ctx, context.DeadlineExceeded))
	cancel()
	require.Equal(t, cli.ExitInterrupted, cli.ExitCode(ctx, ctx.Err()))
	require.Equal(t, cli.ExitDone, cli.ExitCode(ctx, nil))
}

type errText string

func (e errText) Error() string { return string(e) }

var errGone = errText("the reader has gone")

// With --print0 and publish --null, payloads pass from one stream to another byte for byte.
func TestPayloadsBetweenZeroBytes(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	payloads := []string{"one\ntwo\n", "", "\xff\xfe\n", "last"}
	f.publish(t, payloads...)
	r := f.run(t, "fetch", "S", "c", "--count", "2", "--print0")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	rest := f.run(t, "consume", "S", "c", "--count", "2", "--print0", "-q")
	require.Equal(t, cli.ExitDone, rest.code, rest.err)
	require.Equal(t, strings.Join(payloads, "\x00")+"\x00", r.out+rest.out)

	// The last zero byte can be missing.
	again := jetpullRunWith(t, strings.NewReader(strings.TrimSuffix(r.out+rest.out, "\x00")), "publish", "s.b", "--null", "-j", "--nats", f.url)
	require.Equal(t, cli.ExitDone, again.code, again.err)
	require.Contains(t, again.out, `"published":4`)
	s, err := f.js.Stream(t.Context(), "S")
	require.NoError(t, err)
	for i, want := range payloads {
		m, err := s.GetMsg(t.Context(), uint64(len(payloads)+i+1))
		require.NoError(t, err)
		require.Equal(t, want, string(m.Data))
	}

	// Two messages must not become three.
	f = newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, "a\x00b")
	r = f.run(t, "fetch", "S", "c", "--print0")
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, "the payload of message 1 has a zero byte, which --print0 cannot print: use --json")
	require.Contains(t, f.run(t, "fetch", "S", "c", "--json").out, `"data":"a\u0000b"`, "it was handed back")
}
