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
	"github.com/jetpull/jetpull/cmd/jetpull/internal/deadletters"
)

// giveUp makes n messages dead letters in stream D, half of them for each of two reasons.
func (f fixture) giveUp(t *testing.T, n int) {
	t.Helper()
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "D", Subjects: []string{"dead.>"}})
	require.NoError(t, err)
	_, err = f.js.Publish(t.Context(), "dead.other", []byte("no dead letter"))
	require.NoError(t, err)
	for i := range n {
		_, err := f.js.PublishMsg(t.Context(), &nats.Msg{Subject: fmt.Sprintf("s.%d", i%2), Data: fmt.Append(nil, i+1), Header: nats.Header{"X-Kind": {"one"}, nats.MsgIdHdr: {fmt.Sprint(i)}}})
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
		var l deadletters.Letter
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		seqs = append(seqs, l.Sequence)
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
	for _, want := range []string{`subject +s.0\n`, `stream +S\n`, `stream seq +1\n`, `consumer +c\n`, `attempts +1\n`, `reason +the database is away\n`, `headers x-kind +one\n`, `text +1\n`} {
		require.Regexp(t, want, r.out)
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
		require.Regexp(t, "^jetpull: dead letter [2-4]: publish to "+to+": no stream has this subject; create one that has it, or give another subject with --to\n$", r.err)
		require.Equal(t, "requeued 0 dead letters\n", r.out)
		require.Len(t, f.letters(t), 3)
	}
	require.NoError(t, f.js.DeleteStream(t.Context(), "S"))
	r := f.run(t, "dlq", "requeue", "D", "3", "4")
	require.Equal(t, cli.ExitFailed, r.code, "others may have another subject")
	require.Contains(t, r.err, `dead letter 3: publish to s.1: no stream has this subject; create one that has it, or give another subject with --to`)
	require.Contains(t, r.err, "2 dead letters could not be requeued\n")
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
		"ls D --reason nothing": "stream D, over dead.>, has 2 messages, and no dead letter that the filter fits; leave out --reason, --subject and --since to list all\n",
		"ls S":                  "stream S, over s.>, has 1 message, and no dead letter; check that it stores the subject of consume --dead-letter, or see what there is with: nats stream ls\n",
	} {
		r := jetpullRun(t, append([]string{"dlq", "-s", f.url}, strings.Fields(line)...)...)
		require.Equal(t, cli.ExitDone, r.code, r.err)
		require.Equal(t, want, r.err, line)
		require.Empty(t, r.out, line)
	}
	r := jetpullRun(t, "dlq", "ls", "NONE", "-s", f.url)
	require.Equal(t, cli.ExitError, r.code)
	require.Contains(t, r.err, `stream "NONE": stream not found; see what there is with: nats stream ls`)
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
		require.Equal(t, "jetpull: stream \"D\" has no dead letter 1\nstream \"D\" has no dead letter 99\n", r.err)
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

func TestDLQRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"purge which?":                 {"purge", "D"},
		"requeue which?":               {"requeue", "D"},
		"is not the sequence":          {"purge", "D", "x"},
		"--reason":                     {"ls", "D", "--reason", "("},
		"--subject":                    {"ls", "D", "--subject", "a..b"},
		"--since":                      {"ls", "D", "--since", "-1s"},
		"--to":                         {"requeue", "D", "--all", "--to", "a.*"},
		"usage: jetpull dlq ls STREAM": {"ls"},
		"dlq show STREAM SEQUENCE":     {"show", "D"},
		"is not the name of a stream":  {"purge", "a.b", "1"},
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

	r = jetpullRun(t, "publish", "s.a", "{{.Random 3}}", "--size", "10", "-j", "-s", f.url)
	require.Contains(t, r.out, `"published":1`)
	sized, err := s.GetMsg(t.Context(), 601)
	require.NoError(t, err)
	require.Regexp(t, `^[a-z]{3} {7}$`, string(sized.Data))

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
	require.Equal(t, cli.ExitDone, execute(t.Context(), []string{"publish", "s.a", "-s", f.url}, strings.NewReader(`{{.Count}} {{"a": 1`), &out, &errOut), errOut.String())
	piped, err := s.GetMsg(t.Context(), 602)
	require.NoError(t, err)
	require.Equal(t, `{{.Count}} {{"a": 1`, string(piped.Data), "what is piped in is no template")
}

// TestPublishRefusesTemplates sees that a wrong template is refused before a stream is made.
func TestPublishRefusesTemplates(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{})
	for _, args := range [][]string{{"new.{{.Foo}}", "x"}, {"new.x", "{{"}, {"new.x", "{{.Random -1}}"}} {
		r := jetpullRun(t, append([]string{"publish", "-s", f.url, "--create", "NEW"}, args...)...)
		require.Equal(t, cli.ExitUsage, r.code, "%q", args)
		require.Contains(t, r.err, "SUBJECT and BODY are templates: {{.Count}}, {{.Time}}, {{.UnixNano}}, {{.Random N}}")
	}
	_, err := f.js.Stream(t.Context(), "NEW")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}
