package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// giveUp makes n messages dead letters in stream D, half of them for each of two reasons.
func (f fixture) giveUp(t *testing.T, n int) {
	t.Helper()
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "D", Subjects: []string{"dead.>"}})
	require.NoError(t, err)
	_, err = f.js.Publish(t.Context(), "dead.other", []byte("no dead letter"))
	require.NoError(t, err)
	for i := range n {
		_, err := f.js.PublishMsg(t.Context(), &nats.Msg{
			Subject: fmt.Sprintf("s.%d", i%2), Data: fmt.Append(nil, i+1),
			Header: nats.Header{"X-Kind": {"one"}, nats.MsgIdHdr: {fmt.Sprint(i)}},
		})
		require.NoError(t, err)
	}
	sub, err := jetpull.Subscribe(t.Context(), f.js, "S", "c")
	require.NoError(t, err)
	require.NoError(t, sub.Consume(t.Context(), func(_ context.Context, m *jetpull.Msg) error {
		if m.Subject() == "s.0" {
			return errors.New("the database is away")
		}
		return errors.New("no such customer")
	}, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.letters"), jetpull.StopAfter(n)))
	require.NoError(t, sub.Close(t.Context()))
}

// letters are the sequences that dlq ls prints.
func (f fixture) letters(t *testing.T, args ...string) (seqs []uint64) {
	t.Helper()
	r := jetpullRun(t, append([]string{"dlq", "ls", "D", "-j", "-s", f.url}, args...)...)
	require.Equal(t, cli.ExitDone, r.code, r.err)
	for line := range strings.Lines(r.out) {
		var l struct{ Seq uint64 }
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		seqs = append(seqs, l.Seq)
	}
	return seqs
}

func TestDLQ(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.giveUp(t, 6)
	require.Equal(t, []uint64{2, 3, 4, 5, 6, 7}, f.letters(t), "what is no dead letter is left out")
	require.Equal(t, []uint64{2, 4, 6}, f.letters(t, "--reason", "data.*away"))
	require.Equal(t, []uint64{3, 5, 7}, f.letters(t, "--subject", "*.1"))
	require.Len(t, f.letters(t, "--since", "1h"), 6)
	require.Empty(t, f.letters(t, "--since", "1ns"))
	require.Contains(t, jetpullRun(t, "dlq", "ls", "D", "-s", f.url).out, "the database is away")

	r := jetpullRun(t, "dlq", "show", "D", "2", "-s", f.url)
	require.Equal(t, cli.ExitDone, r.code, r.err)
	for _, want := range []string{
		`"subject": "s.0"`, `"stream": "S"`, `"stream_seq": 1,`, `"consumer": "c"`, `"attempts": 1,`, `"reason": "the database is away"`,
		"\"X-Kind\": [\n      \"one\"\n    ]", `"data": "1"`,
	} {
		require.Contains(t, r.out, want)
	}
	require.Equal(t, cli.ExitError, jetpullRun(t, "dlq", "show", "D", "1", "-s", f.url).code, "it is none")

	r = jetpullRun(t, "dlq", "requeue", "D", "--reason", "away", "--dry-run", "-s", f.url)
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, "would requeue 3 dead letters\n", r.out)
	require.Len(t, f.letters(t), 6)
	r = jetpullRun(t, "dlq", "requeue", "D", "--reason", "away", "-s", f.url)
	require.Equal(t, "requeued 3 dead letters\n", r.out, r.err)
	require.Equal(t, []uint64{3, 5, 7}, f.letters(t))
	sub, err := jetpull.Subscribe(t.Context(), f.js, "S", "c")
	require.NoError(t, err)
	again, err := sub.Fetch(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, again, 3)
	require.Equal(t, "s.0", again[0].Subject())
	require.Equal(t, "1", string(again[0].Data()))
	require.Equal(t, []string{"one"}, again[0].Headers().Values("X-Kind"))
	require.Empty(t, again[0].Headers().Get(jetpull.HeaderDeadReason))
	require.NoError(t, jetpull.ConfirmAcks(t.Context(), again...))
	require.NoError(t, sub.Close(t.Context()))

	r = jetpullRun(t, "dlq", "purge", "D", "3", "5", "-j", "-s", f.url)
	require.JSONEq(t, `{"done":2,"failed":0,"dry_run":false}`, r.out)
	require.Equal(t, []uint64{7}, f.letters(t))
	require.Equal(t, "would purge 1 dead letter\n", jetpullRun(t, "dlq", "purge", "D", "7", "--dry-run", "-s", f.url).out)
	require.Equal(t, "purged 1 dead letter\n", jetpullRun(t, "dlq", "purge", "D", "--all", "-s", f.url).out)
	require.Empty(t, f.letters(t))
}

// A requeue to a subject that no stream has ends at once and deletes nothing, also if a subscriber has the subject, which answers nothing.
func TestDLQRequeueToNoStream(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.giveUp(t, 3)
	nc := f.srv.Connect(t)
	_, err := nc.SubscribeSync("subscribed")
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	for _, to := range []string{"nobody.stores", "subscribed"} {
		r := f.run(t, "dlq", "requeue", "D", "--all", "--to", to, "--timeout", "1s")
		require.Equal(t, cli.ExitError, r.code, r.err)
		require.Equal(t, "jetpull: --to: no stream has subject "+to+"; create one that has it, or give another subject\n", r.err)
		require.Empty(t, r.out)
		require.Len(t, f.letters(t), 3)
	}
	require.NoError(t, f.js.DeleteStream(t.Context(), "S"))
	r := f.run(t, "dlq", "requeue", "D", "3", "4")
	require.Equal(t, cli.ExitFailed, r.code, "others may have another subject")
	require.Contains(t, r.err, `dead letter 3: stream "S" of its origin does not exist: give another subject`)
	require.Contains(t, r.err, "2 dead letters could not be requeued\n")
}

// Everybody who may publish to the stream of dead letters can forge one. It gets nothing done that needs the operator's permissions: no request to
// the server, no message to a subscriber or to a stream that is not its origin.
func TestDLQRequeueForged(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.giveUp(t, 1)
	for stream, subject := range map[string]string{"X": "x.>", "eu_messages": "eu.m.>"} {
		_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{subject}})
		require.NoError(t, err)
	}
	inbox := f.srv.Connect(t)
	heard, err := inbox.SubscribeSync("_INBOX.victim.>")
	require.NoError(t, err)
	require.NoError(t, inbox.Flush())
	forged := [][2]string{
		{"$JS.API.STREAM.DELETE.X", "S"},
		{"$JS.API.STREAM.PURGE.S", "X"},
		{"_INBOX.victim.1", "S"},
		{"s.*", "S"},
		{"s.>", "S"},
		{"s..1", "S"},
		{"x.new", "S"},
		{"s.new", "X"},
		{"x.new", "NONE"},
		{"x.new", ""},
		{"eu.m.channel.1", "eu_messages"},
	}
	for _, to := range forged {
		_, err := f.js.PublishMsg(t.Context(), &nats.Msg{Subject: "dead.letters", Header: nats.Header{
			jetpull.HeaderDeadSubject: {to[0]}, jetpull.HeaderDeadStream: {to[1]}, "Nats-Expected-Stream": {"D"}, "nats-rollup": {"all"},
		}})
		require.NoError(t, err)
	}
	r := f.run(t, "dlq", "requeue", "D", "--all", "--dry-run")
	require.Equal(t, cli.ExitFailed, r.code, r.err)
	require.Equal(t, "would requeue 1 dead letter\n", r.out)
	require.Contains(t, r.err, `requeue to s.0 (1); refused: 11 (dead letter 3: subject "$JS.API.STREAM.DELETE.X" belongs to the server, which may act on the message)`)
	require.Contains(t, r.err, "11 dead letters could not be requeued\n")
	require.Len(t, f.letters(t), 12)

	r = f.run(t, "dlq", "requeue", "D", "--all", "-j")
	require.Equal(t, cli.ExitFailed, r.code, r.err)
	require.JSONEq(t, `{"done":1,"failed":11,"dry_run":false,"subjects":{"s.0":1}}`, r.out)
	require.Len(t, f.letters(t), 11)
	stored := func(stream string) uint64 {
		s, err := f.js.Stream(t.Context(), stream)
		require.NoError(t, err, stream)
		return s.CachedInfo().State.Msgs
	}
	require.EqualValues(t, 2, stored("S"))
	require.Zero(t, stored("X"))
	require.Zero(t, stored("eu_messages"))
	for _, to := range []string{"$JS.API.STREAM.DELETE.X", "_INBOX.victim.1"} {
		r = f.run(t, "dlq", "requeue", "D", "--all", "--to", to)
		require.Equal(t, cli.ExitUsage, r.code, r.err)
	}
	require.Zero(t, stored("X"))
	n, _, err := heard.Pending()
	require.NoError(t, err)
	require.Zero(t, n)
	// An operator who names another subject may have the message there.
	r = f.run(t, "dlq", "requeue", "D", "9", "--to", "x.chosen")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, "requeue to x.chosen (1)\n", r.err)
	require.EqualValues(t, 1, stored("X"))
}

// A dead letter cannot pass for an answer of the server, which would hide it and those after it.
func TestDLQForgedStatus(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "D", Subjects: []string{"dead.>"}, AllowDirect: true})
	require.NoError(t, err)
	want := []uint64{}
	for i, status := range []string{"100", "404", "408", "409", "409", "409", "423", "503", "204"} {
		description := []string{"Consumer Deleted", "Server Shutdown", "Leadership Change"}[i%3]
		seq, err := f.js.PublishMsg(t.Context(), &nats.Msg{Subject: "dead.letters", Header: nats.Header{
			"Status": {status}, "Description": {description}, jetpull.HeaderDeadSubject: {"s.0"}, jetpull.HeaderDeadStream: {"S"}, "Nats-Sequence": {"1"},
			"Nats-Last-Consumer": {"0"}, "Nats-Pin-Id": {"x"}, "Nats-Consumer-Stalled": {"$JS.API.STREAM.DELETE.S"},
		}})
		require.NoError(t, err)
		want = append(want, seq.Sequence)
	}
	require.Equal(t, want, f.letters(t))
	r := f.run(t, "dlq", "requeue", "D", "--all")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, "requeued 9 dead letters\n", r.out)
	require.Empty(t, f.letters(t))
}

// Two requeues at once lose nothing, store nothing twice, and neither fails because the other was first.
func TestDLQRequeueTwiceAtOnce(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	const letters = 1000
	f.giveUp(t, letters)
	results := make(chan result)
	for range 2 {
		go func() {
			var out, errOut buffer
			code := execute(t.Context(), []string{"dlq", "requeue", "D", "--all", "-j", "--nats", f.url}, strings.NewReader(""), &out, &errOut)
			results <- result{code, out.String(), errOut.String()}
		}()
	}
	done := 0
	for range 2 {
		r := <-results
		require.Equal(t, cli.ExitDone, r.code, r.err)
		require.Empty(t, r.err)
		one := jsonLines[struct{ Done, Failed, Gone int }](t, r.out)[0]
		require.Zero(t, one.Failed)
		done += one.Done
	}
	require.Equal(t, letters, done)
	require.Empty(t, f.letters(t))
	s, err := f.js.Stream(t.Context(), "S")
	require.NoError(t, err)
	require.EqualValues(t, 2*letters, s.CachedInfo().State.Msgs)
}

// A requeue sends in order, and one that was interrupted is completed by the same command: each message is stored once more.
func TestDLQRequeueIsResumed(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	const letters = 300
	f.giveUp(t, letters)
	out, errOut, stop := f.start(t, "dlq", "requeue", "D", "--all", "--rate", "100")
	d, err := f.js.Stream(t.Context(), "D")
	require.NoError(t, err)
	left := func() uint64 {
		info, err := d.Info(t.Context())
		require.NoError(t, err)
		return info.State.Msgs - 1 // one is no dead letter
	}
	require.Eventually(t, func() bool { return left() < letters-10 }, time.Minute, time.Millisecond)
	require.Equal(t, cli.ExitInterrupted, stop(), errOut.String())
	require.Contains(t, errOut.String(), "interrupted: requeue of", out.String())
	require.NotZero(t, left(), "the rate holds it back")

	r := f.run(t, "dlq", "requeue", "D", "--all")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Zero(t, left())
	s, err := f.js.Stream(t.Context(), "S")
	require.NoError(t, err)
	info, err := s.Info(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2*letters, info.State.LastSeq, "once each")
	for n := range uint64(letters) {
		m, err := s.GetMsg(t.Context(), letters+n+1)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(n+1), string(m.Data), "in order")
	}
}

// TestDLQSaysThatThereIsNothing: an empty table could also mean that the stream is missing, or that the filter has a typing error.
func TestDLQSaysThatThereIsNothing(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.giveUp(t, 1)
	for line, want := range map[string]string{
		"ls D --reason nothing": "stream D, over dead.>, has 2 messages, and no dead letter that the filter fits; leave out --reason, --subject and " +
			"--since to list all\n",
		"ls S": "stream S, over s.>, has 1 message, and no dead letter; check that it stores the subject of consume --dead-letter, or " +
			"see what there is with: jetpull streams ls\n",
	} {
		r := jetpullRun(t, append([]string{"dlq", "-s", f.url}, strings.Fields(line)...)...)
		require.Equal(t, cli.ExitDone, r.code, r.err)
		require.Equal(t, want, r.err, line)
		require.Empty(t, r.out, line)
	}
	r := jetpullRun(t, "dlq", "ls", "NONE", "-s", f.url)
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, `stream "NONE": stream not found; see what there is with: jetpull streams ls`)
	require.Empty(t, r.out)
}

// TestDLQNamesWhatIsNoDeadLetter has sequences that the stream does not have, or has for another message.
func TestDLQNamesWhatIsNoDeadLetter(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.giveUp(t, 2)
	for _, verb := range []string{"requeue", "purge"} {
		r := jetpullRun(t, "dlq", verb, "D", "1", "2", "99", "99", "--dry-run", "-s", f.url)
		require.Equal(t, cli.ExitError, r.code, r.err)
		require.Equal(t, "would "+verb+" 1 dead letter\n", r.out)
		require.Equal(t, map[string]string{"requeue": "requeue to s.0 (1)\n"}[verb]+"jetpull: stream \"D\" has no dead letter 1\nstream \"D\" has no "+
			"dead letter 99\n", r.err)
	}
	r := jetpullRun(t, "dlq", "purge", "D", "2", "99", "-j", "-s", f.url)
	require.Equal(t, cli.ExitError, r.code, r.err)
	require.JSONEq(t, `{"done":1,"failed":1,"dry_run":false}`, r.out)
	require.JSONEq(t, `{"error":"stream \"D\" has no dead letter 99","code":1}`, r.err)
	r = jetpullRun(t, "dlq", "purge", "D", "3", "--reason", "away", "-s", f.url)
	require.Equal(t, cli.ExitError, r.code, r.err)
	require.Contains(t, r.err, `stream "D" has no dead letter 3 that the filter fits`)
	require.Equal(t, []uint64{3}, f.letters(t))
}

// A message that its handler never acknowledges becomes a dead letter, which is listed and requeued like those of Consume.
func TestDLQCapture(t *testing.T) {
	t.Parallel()
	f := newFixture(t, jetstream.ConsumerConfig{MaxDeliver: 1, AckWait: time.Second, AckPolicy: jetstream.AckExplicitPolicy})
	capture := func(args ...string) result {
		r := f.run(t, append([]string{"dlq", "capture", "D", "--dead-letter", "dead.letters", "--idle", "1s"}, args...)...)
		require.Equal(t, cli.ExitDone, r.code, r.err)
		return r
	}
	const all = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."
	require.Equal(t, "created stream D: "+all+"OTHER.>, dead.letters\n", capture("OTHER").err)
	require.Equal(t, "added to stream D: "+all+">\n", capture().err)
	require.Empty(t, capture("OTHER").err, "it has them")
	f.publish(t, "payload")
	consumer, err := f.js.Consumer(t.Context(), "S", "c")
	require.NoError(t, err)
	_, err = consumer.Fetch(1)
	require.NoError(t, err)
	d, err := f.js.Stream(t.Context(), "D")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		info, err := d.Info(t.Context())
		return err == nil && info.State.Msgs == 1
	}, time.Minute, 10*time.Millisecond, "the advisory is kept")
	require.Contains(t, capture().err, "message became a dead letter")
	require.Equal(t, []uint64{2}, f.letters(t))
	require.Contains(t, f.run(t, "dlq", "ls", "D").out, "delivered MaxDeliver times")
	r := f.run(t, "dlq", "requeue", "D", "2")
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Equal(t, "requeued 1 dead letter\n", r.out)
	require.Empty(t, f.letters(t))
	require.Empty(t, capture().err)
	s, err := f.js.Stream(t.Context(), "S")
	require.NoError(t, err)
	again, err := s.GetMsg(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, "payload", string(again.Data))

	r = f.run(t, "dlq", "capture", "S", "--dead-letter", "s.dead")
	require.Equal(t, cli.ExitError, r.code, "stream D has the subject")
	require.Contains(t, r.err, "subjects overlap with an existing stream")
	r = f.run(t, "dlq", "capture", "D", "--dead-letter", "none")
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, `the stream that stores subject "none": `)
}

func TestDLQRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"purge: no dead letter is":      {"purge", "D"},
		"requeue: no dead letter is":    {"requeue", "D"},
		"is not the sequence":           {"purge", "D", "x"},
		"--reason":                      {"ls", "D", "--reason", "("},
		"--subject":                     {"ls", "D", "--subject", "a..b"},
		"--since":                       {"ls", "D", "--since", "-1s"},
		"--to":                          {"requeue", "D", "--all", "--to", "a.*"},
		"usage: jetpull dlq ls STREAM":  {"ls"},
		"dlq show STREAM SEQUENCE":      {"show", "D"},
		"is not the name of a stream":   {"purge", "a.b", "1"},
		`required flag(s) "dead-letter`: {"capture", "D"},
		"not a subject to publish to":   {"capture", "D", "--dead-letter", "a.*"},
		`"b.c" is not the name`:         {"capture", "D", "b.c", "--dead-letter", "a"},
	} {
		r := jetpullRun(t, append([]string{"dlq"}, args...)...)
		require.Equal(t, cli.ExitUsage, r.code, "%q", args)
		require.Contains(t, r.err, want)
	}
}

func TestPublish(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	r := jetpullRun(t, "publish", "s.{{.Count}}", `{"id":{{.Count}}}`, "-n", "600", "-H", "A: 1", "-s", f.url)
	require.Equal(t, cli.ExitDone, r.code, r.err)
	require.Contains(t, r.err, "600 published in")
	require.Contains(t, r.err, "msg/s")
	s, err := f.js.Stream(t.Context(), "S")
	require.NoError(t, err)
	last, err := s.GetMsg(t.Context(), 600)
	require.NoError(t, err)
	require.Equal(t, "s.600", last.Subject)
	require.Equal(t, `{"id":600}`, string(last.Data))
	require.Equal(t, "1", last.Header.Get("A"))

	r = jetpullRun(t, "publish", "s.a", "a{{.Count}}{{b", "--size", "10", "-j", "-s", f.url)
	require.Contains(t, r.out, `"published":1`)
	sized, err := s.GetMsg(t.Context(), 601)
	require.NoError(t, err)
	require.Equal(t, "a1{{b     ", string(sized.Data))

	require.Equal(t, cli.ExitError, jetpullRun(t, "publish", "new.a", "x", "--timeout", "2s", "-s", f.url).code, "no stream is over it")
	require.Equal(t, cli.ExitDone, jetpullRun(t, "publish", "new.a", "x", "--create", "NEW", "-s", f.url).code)
	for want, args := range map[string][]string{
		"is not a subject":                     {"a b"},
		"--count":                              {"a", "x", "-n", "0"},
		`--header "none" is not 'Name: value'`: {"a", "x", "-H", "none"},
		"usage: jetpull publish SUBJECT":       {},
	} {
		r := jetpullRun(t, append([]string{"publish", "-s", f.url}, args...)...)
		require.Equal(t, cli.ExitUsage, r.code, "%q", args)
		require.Contains(t, r.err, want)
	}
	var out, errOut buffer
	require.Equal(t, cli.ExitDone, execute(t.Context(), []string{"publish", "s.a", "-s", f.url}, strings.NewReader(`{{.Count}} {{"a": 1`), &out,
		&errOut), errOut.String())
	piped, err := s.GetMsg(t.Context(), 602)
	require.NoError(t, err)
	require.Equal(t, `{{.Count}} {{"a": 1`, string(piped.Data), "what is piped in is no template")
}

// A subject that begins with $ is a request to the server rather than a message, unless somebody means it.
func TestPublishToTheServerNeedsForce(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, "a", "b")
	for _, args := range [][]string{
		{"$JS.API.STREAM.PURGE.S", ""},
		{"s.a", "x", "--every", "1h", "--schedule", "$JS.API.STREAM.PURGE.S"},
	} {
		r := f.run(t, append([]string{"publish"}, args...)...)
		require.Equal(t, cli.ExitUsage, r.code, "%q: %s", args, r.err)
		require.Contains(t, r.err, "subject $JS.API.STREAM.PURGE.S belongs to the server, which may act on the message: add --force if that is what "+
			"you want")
	}
	var out, errOut buffer
	args := []string{"publish", "$JS.API.STREAM.PURGE.S", "--lines", "--nats", f.url}
	require.Equal(t, cli.ExitUsage, execute(t.Context(), args, strings.NewReader("\n"), &out, &errOut), errOut.String())
	s, err := f.js.Stream(t.Context(), "S")
	require.NoError(t, err)
	require.EqualValues(t, 2, s.CachedInfo().State.Msgs)
	_, err = f.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "B"})
	require.NoError(t, err)
	r := f.run(t, "publish", "$KV.B.key", "value", "--force")
	require.Equal(t, cli.ExitDone, r.code, r.err)
}

// A subject with another word in braces is refused before a stream is made.
func TestPublishRefusesOtherTemplates(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	r := jetpullRun(t, "publish", "-s", f.url, "--create", "NEW", "new.{{.Foo}}", "x")
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, `"new.{{.Foo}}" is not a subject to publish to`)
	_, err := f.js.Stream(t.Context(), "NEW")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}
