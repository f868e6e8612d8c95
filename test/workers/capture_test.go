package workers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/deadletters"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/test/servertest"
)

const prefix = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."

// lines is a log of JSON.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// reasons are those of the lines with a message, by the sequence of the advisory.
func (l *lines) reasons(t *testing.T, msg string) map[uint64][]string {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[uint64][]string{}
	for text := range strings.Lines(l.text.String()) {
		var one struct {
			Level, Msg, Reason string
			Seq                uint64 `json:"advisory_sequence"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &one))
		if one.Msg == msg {
			require.Equal(t, "WARN", one.Level)
			found[one.Seq] = append(found[one.Seq], one.Reason)
		}
	}
	return found
}

// capturing is a server with the streams JOBS and DEAD, of which DEAD keeps the advisories.
type capturing struct {
	*servertest.Server
	js         jetstream.JetStream
	jobs, dead jetstream.Stream
	log        *lines
}

func newCapturing(t *testing.T) *capturing {
	t.Helper()
	server := servertest.RunServer(t)
	js := server.JetStream(t, server.Connect(t))
	c := &capturing{server, js, natstest.Stream(t, js, stream, "jobs.>"), natstest.Stream(t, js, "DEAD", "dead.>"), &lines{}}
	added, err := deadletters.Keep(t.Context(), js, "DEAD")
	require.NoError(t, err)
	require.Equal(t, []string{prefix + ">"}, added)
	added, err = deadletters.Keep(t.Context(), js, "DEAD", stream)
	require.NoError(t, err)
	require.Empty(t, added, "it keeps those of all streams")
	return c
}

// exhaust publishes n messages, and takes them from a consumer with MaxDeliver, without an acknowledgement.
func (c *capturing) exhaust(t *testing.T, name string, n, maxDeliver int) {
	t.Helper()
	consumer, err := c.jobs.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: maxDeliver, MaxAckPending: -1,
	})
	require.NoError(t, err)
	before := c.kept(t)
	for i := range n {
		_, err := c.js.PublishMsg(t.Context(), &nats.Msg{Subject: "jobs.a", Data: fmt.Append(nil, i+1), Header: nats.Header{"X-Kind": {"one"}}})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		if batch, err := consumer.FetchNoWait(n); err == nil {
			for range batch.Messages() { // none is acknowledged
			}
		}
		return c.kept(t) == before+n
	}, time.Minute, 20*time.Millisecond, "advisories")
}

// kept is the number of advisories, and letters those of dead letters.
func (c *capturing) kept(t *testing.T) int {
	t.Helper()
	return c.count(t, prefix+">")
}

func (c *capturing) letters(t *testing.T) int {
	t.Helper()
	return c.count(t, "dead.>")
}

func (c *capturing) count(t *testing.T, subject string) (n int) {
	t.Helper()
	info, err := c.dead.Info(t.Context(), jetstream.WithSubjectFilter(subject))
	require.NoError(t, err)
	for _, count := range info.State.Subjects {
		n += int(count)
	}
	return n
}

// capture runs Capture until it has handled no advisory for a while, and all are settled.
func (c *capturing) capture(t *testing.T, idle time.Duration) {
	t.Helper()
	cfg := deadletters.Config{Stream: "DEAD", Subject: "dead.jobs", Idle: idle, Logger: slog.New(slog.NewJSONHandler(c.log, nil))}
	require.NoError(t, deadletters.Capture(t.Context(), c.js, cfg))
	consumer, err := c.dead.Consumer(t.Context(), "max-deliveries")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		info, err := consumer.Info(t.Context())
		return err == nil && info.NumAckPending == 0 && info.NumPending == 0
	}, time.Minute, 20*time.Millisecond, "each advisory is acknowledged")
}

// each are the dead letters by the sequence of their messages, each once.
func (c *capturing) each(t *testing.T) map[string]*jetstream.RawStreamMsg {
	t.Helper()
	all := map[string]*jetstream.RawStreamMsg{}
	info, err := c.dead.Info(t.Context())
	require.NoError(t, err)
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		m, err := c.dead.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		if m.Subject == "dead.jobs" {
			key := m.Header.Get(jetpull.HeaderDeadSequence)
			require.NotContains(t, all, key, "stored twice")
			all[key] = m
		}
	}
	return all
}

// A message that no handler acknowledges becomes a dead letter like those of Consume, by as many deliveries as MaxDeliver.
func TestCapture(t *testing.T) {
	t.Parallel()
	c := newCapturing(t)
	c.exhaust(t, "c1", 3, 2)
	c.capture(t, time.Second)
	all := c.each(t)
	require.Len(t, all, 3)
	original, err := c.jobs.GetMsg(t.Context(), 2)
	require.NoError(t, err, "nothing is deleted")
	require.Equal(t, "2", string(all["2"].Data))
	require.Equal(t, nats.Header{
		"X-Kind": {"one"}, "Nats-Msg-Id": {fmt.Sprintf("JOBS:c1:2:%d", original.Time.UnixNano())}, jetpull.HeaderDeadReason: {"delivered MaxDeliver times"},
		jetpull.HeaderDeadStream: {"JOBS"}, jetpull.HeaderDeadConsumer: {"c1"}, jetpull.HeaderDeadSequence: {"2"}, jetpull.HeaderDeadSubject: {"jobs.a"},
		jetpull.HeaderDeadAttempts: {"2"},
	}, all["2"].Header)
	c.capture(t, time.Second)
	require.Len(t, c.each(t), 3, "a second capture finds nothing")
}

// Advisories that are handled one after another for longer than Idle do not end Capture.
func TestCaptureIsNotIdle(t *testing.T) {
	t.Parallel()
	const idle = 2 * time.Second
	c := newCapturing(t)
	ended := make(chan error, 1)
	cfg := deadletters.Config{Stream: "DEAD", Subject: "dead.jobs", Idle: idle, Logger: slog.New(slog.NewJSONHandler(c.log, nil))}
	go func() { ended <- deadletters.Capture(t.Context(), c.js, cfg) }()
	for begun := time.Now(); time.Since(begun) < 2*idle; {
		ack, err := c.js.Publish(t.Context(), prefix+"JOBS.c1", []byte("{}"))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return len(c.log.reasons(t, "deadletters: advisory was dropped")[ack.Sequence]) == 1 },
			time.Minute, 20*time.Millisecond, "handled")
	}
	require.NoError(t, <-ended)
}

// A message that Consume has stored as a dead letter, and whose termination was lost, is not stored twice.
func TestCaptureAfterConsume(t *testing.T) {
	t.Parallel()
	c := newCapturing(t)
	original, err := c.js.Publish(t.Context(), "jobs.a", []byte("x"))
	require.NoError(t, err)
	natstest.Consumer(t, c.js, stream, jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: 1})
	sub, err := jetpull.Subscribe(t.Context(), c.js, stream, "c")
	require.NoError(t, err)
	require.NoError(t, sub.Consume(t.Context(), func(context.Context, *jetpull.Msg) error { return fmt.Errorf("broken") },
		jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.jobs"), jetpull.StopAfter(1), jetpull.Logger(slog.New(slog.NewJSONHandler(c.log, nil)))))
	require.NoError(t, sub.Close(t.Context()))
	require.NotContains(t, c.log.text.String(), "no stream keeps")
	c.publish(t, stream, "c", original.Sequence) // as the server would, if the termination was lost
	c.capture(t, time.Second)
	require.Len(t, c.each(t), 1)
	require.Len(t, c.log.reasons(t, "deadletters: message became a dead letter"), 1)
}

// A message whose processes die in its handler becomes a dead letter.
func TestCaptureAfterProcessesThatDied(t *testing.T) {
	t.Parallel()
	c := newCapturing(t)
	natstest.Consumer(t, c.js, stream, jetstream.ConsumerConfig{
		Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: 10,
	})
	_, err := c.js.Publish(t.Context(), "jobs.a", []byte(killer))
	require.NoError(t, err)
	lives := 0
	for c.kept(t) == 0 {
		require.Less(t, lives, 30)
		l := start(t, workerSettings{URL: c.URL(), Concurrency: 1})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range l.lines { // it must not block
			}
		}()
		require.Eventually(t, func() bool {
			select {
			case <-ended:
				lives++
				return true
			default:
				return c.kept(t) > 0
			}
		}, time.Minute, 20*time.Millisecond)
		l.stop()
	}
	require.Equal(t, 10, lives)
	c.capture(t, time.Second)
	require.Equal(t, "10", c.each(t)["1"].Header.Get(jetpull.HeaderDeadAttempts))
}

// A capture that is killed twice with a backlog stores each dead letter once.
func TestCaptureIsKilled(t *testing.T) {
	t.Parallel()
	c := newCapturing(t)
	const backlog = 1000
	c.exhaust(t, "c", backlog, 1)
	for _, least := range []int{backlog / 5, backlog / 2} {
		l := start(t, workerSettings{URL: c.URL(), Capture: true})
		require.Eventually(t, func() bool { return c.letters(t) >= least }, time.Minute, time.Millisecond)
		require.NoError(t, l.cmd.Process.Kill())
		l.stop()
		require.Less(t, c.letters(t), backlog, "it was killed in the middle")
	}
	c.capture(t, 40*time.Second) // longer than the AckWait of the advisories
	require.Len(t, c.each(t), backlog)
	require.Empty(t, c.log.reasons(t, "deadletters: advisory was dropped"))
}

// publish forges an advisory.
func (c *capturing) publish(t *testing.T, stream, consumer string, seq uint64) (at uint64) {
	t.Helper()
	return c.forge(t, stream+"."+consumer, fmt.Sprintf(`{"stream":%q,"consumer":%q,"stream_seq":%d,"deliveries":1}`, stream, consumer, seq))
}

func (c *capturing) forge(t *testing.T, names, body string) (at uint64) {
	t.Helper()
	ack, err := c.js.Publish(t.Context(), prefix+names, []byte(body))
	require.NoError(t, err)
	return ack.Sequence
}

// Advisories that do not fit are dropped, each with one line, and a true one beside them becomes a dead letter.
func TestCaptureOfForgedAdvisories(t *testing.T) {
	t.Parallel()
	c := newCapturing(t)
	ctx := t.Context()
	c.exhaust(t, "c", 1, 1)
	for _, subject := range []string{"jobs.b", "jobs.c", "jobs.d"} {
		header := nats.Header{}
		if subject == "jobs.d" {
			header.Set(jetpull.HeaderDeadSubject, "x")
		}
		_, err := c.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: header})
		require.NoError(t, err)
	}
	acknowledge := func(s jetstream.Stream, cfg jetstream.ConsumerConfig) {
		cfg.AckPolicy = jetstream.AckExplicitPolicy
		consumer, err := s.CreateConsumer(ctx, cfg)
		require.NoError(t, err)
		batch, err := consumer.FetchNoWait(10)
		require.NoError(t, err)
		for m := range batch.Messages() {
			require.NoError(t, m.DoubleAck(ctx))
		}
	}
	acknowledge(c.jobs, jetstream.ConsumerConfig{Durable: "acked", MaxDeliver: 5})
	acknowledge(c.jobs, jetstream.ConsumerConfig{Durable: "unlimited"})
	acknowledge(c.jobs, jetstream.ConsumerConfig{Durable: "filter", MaxDeliver: 5, FilterSubject: "jobs.c"})
	for name, cfg := range map[string]jetstream.StreamConfig{
		"WORK": {Subjects: []string{"work"}, Retention: jetstream.WorkQueuePolicy}, "eu_jobs": {Subjects: []string{"eu.j.>"}},
	} {
		cfg.Name = name
		s := natstest.StreamWith(t, c.js, cfg)
		_, err := c.js.Publish(ctx, strings.Replace(cfg.Subjects[0], ">", "a", 1), nil)
		require.NoError(t, err)
		acknowledge(s, jetstream.ConsumerConfig{Durable: "c", MaxDeliver: 5})
	}
	later, err := c.jobs.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "behind", MaxDeliver: 5, AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	require.NotNil(t, later)
	require.NoError(t, c.jobs.DeleteMsg(ctx, 3))

	long := strings.Repeat("x", 1000)
	want := map[uint64]string{
		c.publish(t, stream, "none", 1):           "consumer none of stream JOBS: ",
		c.publish(t, "NONE", "c", 1):              "stream NONE: ",
		c.publish(t, stream, long, 1):             "does not state what its subject does",
		c.publish(t, stream, "behind", 1):         "has delivered up to sequence 0, and not 1",
		c.publish(t, stream, "c", 1<<60):          "has delivered up to sequence 1",
		c.publish(t, stream, "c", 0):              "no deliveries of a message",
		c.publish(t, stream, "unlimited", 2):      "has no MaxDeliver",
		c.publish(t, stream, "filter", 2):         "does not take message 2, of subject jobs.b",
		c.publish(t, stream, "acked", 3):          "message 3 was deleted",
		c.publish(t, stream, "acked", 4):          "message 4 is a dead letter itself",
		c.publish(t, "WORK", "c", 1):              "message 1 was deleted",
		c.publish(t, "eu_jobs", "c", 1):           "belongs to the broker",
		c.forge(t, "JOBS.c", "{"):                 "it is no advisory",
		c.forge(t, "JOBS.c", `{"stream_seq":-1}`): "it is no advisory",
		c.forge(t, "JOBS.c", `[]`):                "it is no advisory",
		c.forge(t, "A.B.c", `{"stream":"A.B"}`):   "does not state what its subject does",
		c.forge(t, "OTHER.c", `{"stream":"JOBS","consumer":"c","stream_seq":1,"deliveries":1}`): "does not state what its subject does",
	}
	passed := c.publish(t, stream, "acked", 2) // nothing shows that message 2 was acknowledged
	c.capture(t, 12*time.Second)
	all := c.each(t)
	require.Len(t, all, 2)
	require.Contains(t, all, "1")
	require.Contains(t, all, "2")
	require.Contains(t, c.log.reasons(t, "deadletters: message became a dead letter"), passed)
	dropped := c.log.reasons(t, "deadletters: advisory was dropped")
	require.Len(t, dropped, len(want))
	for at, reason := range want {
		require.Len(t, dropped[at], 1, reason)
		require.Contains(t, dropped[at][0], reason)
	}
	require.Zero(t, c.js.Conn().Stats().Reconnects)
}

// forgetful is a server that fails to find a stream some times.
type forgetful struct {
	jetstream.JetStream
	err   error
	times atomic.Int32
}

func (f *forgetful) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if name == stream && f.times.Add(-1) >= 0 {
		return nil, f.err
	}
	return f.JetStream.Stream(ctx, name)
}

// A stream or consumer that is not found for a moment, as on a server that has just started, or is not known now, loses no advisory.
func TestCaptureOfWhatIsNotFoundNow(t *testing.T) {
	t.Parallel()
	for _, err := range []error{jetstream.ErrStreamNotFound, jetstream.ErrConsumerNotFound, context.DeadlineExceeded, nats.ErrNoResponders} {
		t.Run(err.Error(), func(t *testing.T) {
			c := newCapturing(t)
			c.exhaust(t, "c", 1, 1)
			f := &forgetful{JetStream: c.js, err: err}
			f.times.Store(2)
			c.js = f
			c.capture(t, 5*time.Second)
			require.Len(t, c.each(t), 1)
			require.Empty(t, c.log.reasons(t, "deadletters: advisory was dropped"))
			require.Negative(t, f.times.Load())
		})
	}
}
