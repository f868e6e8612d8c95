package jetpull

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/textproto"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

func TestOverlap(t *testing.T) {
	for _, tc := range []struct {
		filter, subject string
		want            bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a.b", false},
		{"a.b", "a", false},
		{"a.b", "a.b", true},
		{"*", "a", true},
		{"*", "a.b", false},
		{"a.*", "a.b", true},
		{"a.*", "a", false},
		{"a.*.c", "a.b.c", true},
		{"a.*.c", "a.b.d", false},
		{"*.*", "a.b", true},
		{">", "a", true},
		{">", "a.b.c", true},
		{"a.>", "a", false},
		{"a.>", "a.b", true},
		{"a.>", "a.b.c", true},
		{"a.>", "b.c", false},
		{"a.*.>", "a.b", false},
		{"a.*.>", "a.b.c", true},
		{"a*", "ab", false},
		{"a.*", "*.b", true},
		{"a.*", "b.*", false},
		{"a.>", "*.b.c", true},
		{"a.>", ">", true},
		{"a.*", "a.b.*", false},
	} {
		require.Equal(t, tc.want, overlap(tc.filter, tc.subject), "%s on %s", tc.filter, tc.subject)
		require.Equal(t, tc.want, overlap(tc.subject, tc.filter), "%s on %s", tc.subject, tc.filter)
	}
}

func TestDelivers(t *testing.T) {
	s := &Subscription{}
	require.True(t, s.delivers("anything"), "no filter delivers all")
	s.configure(jetstream.ConsumerConfig{FilterSubject: "a.*"})
	require.True(t, s.delivers("a.b"))
	require.False(t, s.delivers("dead.b"))
	s.configure(jetstream.ConsumerConfig{FilterSubjects: []string{"a.*", "b.>"}})
	require.True(t, s.delivers("b.c.d"))
	require.False(t, s.delivers("dead.b"))
}

func TestTakenOver(t *testing.T) {
	to := func(pairs ...string) (ts []jetstream.SubjectTransformConfig) {
		for i := 0; i < len(pairs); i += 2 {
			ts = append(ts, jetstream.SubjectTransformConfig{Source: pairs[i], Destination: pairs[i+1]})
		}
		return ts
	}
	for name, tc := range map[string]struct {
		source jetstream.StreamSource
		want   []string
	}{
		"all":                    {jetstream.StreamSource{}, []string{"dead.a"}},
		"within the filter":      {jetstream.StreamSource{FilterSubject: "dead.*"}, []string{"dead.a"}},
		"outside the filter":     {jetstream.StreamSource{FilterSubject: "live.*"}, nil},
		"no transform fits":      {jetstream.StreamSource{SubjectTransforms: to("live.>", "x.>")}, nil},
		"to one subject":         {jetstream.StreamSource{SubjectTransforms: to("dead.>", "s.back")}, []string{"s.back"}},
		"with wildcards":         {jetstream.StreamSource{SubjectTransforms: to("dead.*", "s.$1.{{wildcard(1)}}.{{partition(3,1)}}.{{ Left(1,2)}}")}, []string{"s.*.*.*.*"}},
		"with a rest":            {jetstream.StreamSource{SubjectTransforms: to("dead.>", "s.>")}, []string{"s.>"}},
		"split":                  {jetstream.StreamSource{SubjectTransforms: to("dead.*", "s.{{split(1,-)}}.x")}, []string{"s.>"}},
		"a filter and no change": {jetstream.StreamSource{SubjectTransforms: to("dead.*", "")}, []string{"dead.a"}},
	} {
		require.Equal(t, tc.want, takenOver(&tc.source, "dead.a"), name)
	}
}

func TestHeaderText(t *testing.T) {
	require.Equal(t, "one two three", headerText("one\r\ntwo\t\n three "))
	require.Equal(t, "a?b", headerText("a\xffb"))
	long := headerText(strings.Repeat("ö", 2000))
	require.LessOrEqual(t, len(long), maxReason)
	require.GreaterOrEqual(t, len(long), maxReason-1)
	require.Equal(t, strings.Repeat("ö", len(long)/2), long, "cut between letters")
}

// graveyard is what stores dead letters on a stage.
type graveyard struct {
	s     *stage
	owner string // the stream that stores the subject; "": none
	down  bool   // publishing is not answered
	full  bool   // publishing is refused
	only  string // all ids but this are refused; "": none
	tries int
	dead  []deadLetter
}

type deadLetter struct {
	header nats.Header
	body   string
}

func newGraveyard(t *testing.T, s *stage) *graveyard {
	g := &graveyard{s: s, owner: "DEAD"}
	s.peer.OnRequest("$JS.API.STREAM.NAMES", func(p *natstest.Peer, r natstest.Request) {
		names := []string{}
		if g.owner != "" {
			names = append(names, g.owner)
		}
		p.ReplyJSON(r.Reply, map[string]any{"total": len(names), "offset": 0, "limit": 1024, "streams": names})
	})
	s.peer.OnRequest("$JS.API.STREAM.INFO.*", func(p *natstest.Peer, r natstest.Request) {
		p.ReplyJSON(r.Reply, map[string]any{"config": map[string]any{"name": strings.TrimPrefix(r.Subject, "$JS.API.STREAM.INFO.")}})
	})
	s.peer.OnRequest("dead.*", func(p *natstest.Peer, r natstest.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		g.tries++
		header := parseHeader(t, r.Header)
		switch {
		case g.down:
			return
		case g.full, g.only != "" && g.only != header.Get("Nats-Msg-Id"):
			p.ReplyJSON(r.Reply, map[string]any{"error": map[string]any{"code": 400, "err_code": 10054, "description": "message size exceeds maximum allowed"}})
			return
		}
		for i, d := range g.dead {
			if d.header.Get("Nats-Msg-Id") == header.Get("Nats-Msg-Id") {
				p.ReplyJSON(r.Reply, map[string]any{"stream": g.owner, "seq": i + 1, "duplicate": true})
				return
			}
		}
		g.dead = append(g.dead, deadLetter{header, string(r.Body)})
		p.ReplyJSON(r.Reply, map[string]any{"stream": g.owner, "seq": len(g.dead)})
	})
	return g
}

// deadID is the message id of a dead letter on a stage.
func deadID(seq int) string { return fmt.Sprintf("S:C:%d:%d", seq, stageStored.UnixNano()) }

func parseHeader(t *testing.T, raw []byte) nats.Header {
	h := nats.Header{}
	lines := bytes.Split(raw, []byte("\r\n"))
	if len(lines) < 2 {
		t.Errorf("header %q has no lines", raw)
	}
	for _, line := range lines[1:] {
		if key, value, ok := bytes.Cut(line, []byte(":")); ok {
			h[string(key)] = append(h[string(key)], textproto.TrimString(string(value)))
		}
	}
	return h
}

func alwaysFails(context.Context, *Msg) error { return errors.New("does\nnot work") }

func TestMaxAttemptsTerminates(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		s.publish(1)
		var j journal
		r := s.consume(func(ctx context.Context, m *Msg) error { j.note(m); return alwaysFails(ctx, m) }, MaxAttempts(3), RetryDelays(time.Second))
		pass(time.Minute)
		require.Len(t, j.all(), 3)
		require.Equal(t, 2, s.count("-NAK", 1))
		terms := s.verbs("+TERM", 1)
		require.Len(t, terms, 1)
		require.Equal(t, "failed 3 times: does not work", terms[0].arg)
		require.NoError(t, r.stop())
	})
}

func TestDeadLetter(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		termsBefore := -1
		s.publishTo("s.order", nats.Header{"Trace": {"t1"}, "Nats-Msg-Id": {"id-7"}, "Nats-Expected-Stream": {"S"}}, "payload")
		s.peer.OnRequest("dead.never", func(*natstest.Peer, natstest.Request) {})
		r := s.consume(func(ctx context.Context, m *Msg) error {
			termsBefore = s.count("+TERM", 0)
			return alwaysFails(ctx, m)
		}, MaxAttempts(2), DeadLetter("dead.letters"))
		pass(time.Second)
		require.Zero(t, termsBefore)
		require.Equal(t, 1, s.count("+TERM", 1))
		require.Zero(t, s.unsettled())
		require.Len(t, g.dead, 1)
		require.Equal(t, "payload", g.dead[0].body)
		require.Equal(t, nats.Header{
			"Trace":            {"t1"},
			"Nats-Msg-Id":      {deadID(1)},
			HeaderDeadMsgID:    {"id-7"},
			HeaderDeadReason:   {"does not work"},
			HeaderDeadStream:   {"S"},
			HeaderDeadSequence: {"1"},
			HeaderDeadSubject:  {"s.order"},
			HeaderDeadConsumer: {"C"},
			HeaderDeadAttempts: {"2"},
		}, g.dead[0].header)
		require.NoError(t, r.stop())
	})
}

func TestDeadLetterThatFailsKeepsTheOriginal(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		g.down = true
		s.publish(1)
		r := s.consume(alwaysFails, MaxAttempts(1), DeadLetter("dead.letters"))
		pass(30 * time.Second)
		require.Zero(t, s.count("+TERM", 1), "terminated without a copy")
		require.Positive(t, s.count("-NAK", 1))
		require.Equal(t, 1, s.unsettled())
		require.LessOrEqual(t, g.tries, 8, "no flood of tries")
		require.Positive(t, countWith(r.errs.all(), "dead letter"))
		s.do(func() { g.down = false })
		pass(30 * time.Second)
		require.Len(t, g.dead, 1)
		require.Equal(t, 1, s.count("+TERM", 1))
		require.Zero(t, s.unsettled())
		require.NoError(t, r.stop())
	})
}

// TestDeadLetterOfARedeliveredOriginal: the copy is stored, but its
// confirmation lost.
func TestDeadLetterOfARedeliveredOriginal(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		lost := false
		s.peer.OnRequest("dead.letters", func(p *natstest.Peer, r natstest.Request) {
			s.mu.Lock()
			defer s.mu.Unlock()
			header := parseHeader(t, r.Header)
			if !lost {
				lost = true
				g.dead = append(g.dead, deadLetter{header, string(r.Body)})
				return
			}
			require.Equal(t, g.dead[0].header.Get("Nats-Msg-Id"), header.Get("Nats-Msg-Id"), "the same id, so the stream keeps one")
			p.ReplyJSON(r.Reply, map[string]any{"stream": "DEAD", "seq": 1, "duplicate": true})
		})
		s.publish(1)
		r := s.consume(alwaysFails, MaxAttempts(1), DeadLetter("dead.letters"))
		pass(30 * time.Second)
		require.Equal(t, 1, s.count("+TERM", 1))
		require.NoError(t, r.stop())
	})
}

// TestDeadLetterAtTheLastDelivery: the server would not deliver it again, so
// the copy is tried for until it is stored.
func TestDeadLetterAtTheLastDelivery(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxDeliver: 2, AckWait: 4 * time.Second}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		g.down = true
		s.publish(1)
		r := s.consume(alwaysFails, MaxAttempts(2), DeadLetter("dead.letters"))
		pass(time.Minute)
		require.Equal(t, 1, s.count("-NAK", 1), "after the first delivery")
		require.Zero(t, s.count("+TERM", 1))
		require.Positive(t, s.count("+WPI", 1), "it is kept alive meanwhile")
		s.do(func() { g.down = false })
		pass(10 * time.Second)
		require.Len(t, g.dead, 1)
		require.Equal(t, 1, s.count("+TERM", 1))
		require.NoError(t, r.stop())
	})
}

// TestDeadLetterAtTheLastDeliveryWhileItStops: the drain goes on trying, for as
// long as handlers may go on.
func TestDeadLetterAtTheLastDeliveryWhileItStops(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxDeliver: 1}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		g.down = true
		s.publish(1)
		r := s.consume(alwaysFails, MaxAttempts(1), DeadLetter("dead.letters"))
		pass(7 * time.Second)
		r.cancel()
		pass(8 * time.Second)
		require.True(t, r.running(), "given up although the message would be lost")
		s.do(func() { g.down = false })
		require.NoError(t, r.result())
		require.Len(t, g.dead, 1)
		require.Equal(t, 1, s.count("+TERM", 1))
	})
}

func TestDeadLetterAtTheLastDeliveryEndsWithTheDrain(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxDeliver: 1}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		g.down = true
		s.publish(1)
		r := s.consume(alwaysFails, MaxAttempts(1), DeadLetter("dead.letters"), DrainTimeout(3*time.Second))
		pass(time.Second)
		stopped := time.Now()
		require.ErrorIs(t, r.stop(), ErrDrainTimeout)
		require.LessOrEqual(t, time.Since(stopped), 3*time.Second+drainGrace)
		pass(time.Minute)
		require.Zero(t, s.count("+TERM", 1), "nothing says that it was dealt with")
		synctest.Wait()
	})
}

// TestDeadLetterThatIsNotConfirmedWhenTheDrainEnds: the original goes back at
// once; another client does not have to wait for its AckWait.
func TestDeadLetterThatIsNotConfirmedWhenTheDrainEnds(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, s *stage) {
		g := newGraveyard(t, s)
		g.down = true
		s.publish(1)
		r := s.consume(alwaysFails, MaxAttempts(1), DeadLetter("dead.letters"), DrainTimeout(time.Second))
		pass(time.Second)
		require.Zero(t, s.count("-NAK", 1))
		stopped := time.Now()
		require.ErrorIs(t, r.stop(), ErrDrainTimeout)
		require.Equal(t, time.Second, time.Since(stopped))
		require.Equal(t, 1, s.count("-NAK", 1))
		require.Zero(t, s.count("+TERM", 1))
	})
}

func TestDeadLetterRefused(t *testing.T) {
	for _, tc := range []struct {
		name, subject, owner string
		says                 string
		filters              []string
	}{
		{"nobody stores it", "dead.letters", "", "no stream", nil},
		{"delivered by the consumer itself", "s.dead", "S", "loop", nil},
		{"within the filter", "s.dead", "S", "loop", []string{"t.*", "s.>"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{FilterSubjects: tc.filters}, func(t *testing.T, s *stage) {
				newGraveyard(t, s).owner = tc.owner
				err := s.sub.Consume(t.Context(), alwaysFails, MaxAttempts(1), DeadLetter(tc.subject))
				require.ErrorIs(t, err, ErrInvalidOption)
				require.ErrorContains(t, err, tc.says)
				require.ErrorContains(t, err, tc.subject)
				require.Zero(t, s.pullCount())
			})
		})
	}
}

func TestDeadLetterInTheSameStreamOutsideTheFilter(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{FilterSubject: "s.>"}, func(t *testing.T, s *stage) {
		newGraveyard(t, s).owner = "S"
		r := s.consume(alwaysFails, MaxAttempts(1), DeadLetter("dead.letters"))
		s.publish(1)
		pass(time.Second)
		require.Equal(t, 1, s.count("+TERM", 1))
		require.NoError(t, r.stop())
	})
}

func countWith(errs []error, text string) (n int) {
	for _, err := range errs {
		if strings.Contains(err.Error(), text) {
			n++
		}
	}
	return n
}
