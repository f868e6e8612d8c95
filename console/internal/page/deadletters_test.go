package page

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
)

// watchLetters runs a test with the pages of dead letters of a stream. Next is their state after the next samples.
func watchLetters(t *testing.T, source MessageSource, test func(d *DeadLetters, next func() state.State)) {
	synctest.Test(t, func(*testing.T) {
		s := sample.New()
		defer s.Close()
		defer s.Watch()()
		d := NewDeadLetters(s, source, operation.NewRunner(slog.New(slog.DiscardHandler)), nil, NewMarks())
		test(d, func() state.State {
			time.Sleep(2 * time.Second)
			synctest.Wait()
			return d.letters(d.latest.Get().Value).Of()
		})
	})
}

// Whatever else a stream has, its dead letters are counted.
func TestDeadLettersAreCountedByHeader(t *testing.T) {
	ordinary := jetstream.RawStreamMsg{Subject: "dlq", Data: []byte("hello")}
	source := newStream("DLQ", "dlq")
	watchLetters(t, source, func(d *DeadLetters, next func() state.State) {
		require.Equal(t, "No dead letter was found.", next().Sentence)
		source.letter(1312, "card refused")
		source.store(1, ordinary)
		require.Equal(t, "1,312 dead letters that nobody has looked at.", next().Sentence)
		overview := d.Overview(t.Context(), Request{})
		require.Equal(t, view.Bad, overview.ProblemTone)
		require.Equal(t, "1,312", overview.Facts[0].Value.Text)
		page, err := d.list(t.Context(), Request{Query: url.Values{}, Now: time.Now()})
		require.NoError(t, err)
		require.Len(t, page.Parts[0].List.Rows, pageSize)
		require.Equal(t, "50 dead letters shown, newest first; 1,312 dead letters in stream DLQ", page.Parts[0].List.Found)

		source.store(800, ordinary)
		require.Equal(t, "1,312 dead letters that nobody has looked at.", next().Sentence)
		require.Less(t, source.reads(), 5000, "what was counted is not read again")
		require.Equal(t, state.Red, next().Level)
		require.Zero(t, source.reads(), "nothing has changed")
		source.letter(1, "new")
		require.Equal(t, "1,313 dead letters that nobody has looked at.", next().Sentence)
		require.Less(t, source.reads(), 10)
		source.remove(func(m *jetstream.RawStreamMsg) bool { return m.Sequence <= 312 || m.Sequence == 700 })
		require.Equal(t, "1,000 dead letters that nobody has looked at.", next().Sentence)
		source.remove(isDeadLetter)
		require.Equal(t, "No dead letter was found.", next().Sentence)
	})
}

// A stream that has only ordinary messages in the end is found by the messages before them.
func TestDeadLettersAreFoundBehindOthers(t *testing.T) {
	source := newStream("MIXED", "orders.>", "dlq")
	source.letter(3, "card refused")
	source.store(12_000, jetstream.RawStreamMsg{Subject: "orders.new"})
	source.letter(2, "card refused")
	source.store(400, jetstream.RawStreamMsg{Subject: "orders.new"})
	watchLetters(t, source, func(_ *DeadLetters, next func() state.State) {
		require.Equal(t, "5 dead letters that nobody has looked at.", next().Sentence)
	})
}

// Old dead letters are counted, however fast the stream grows.
func TestDeadLettersOfAStreamThatGrows(t *testing.T) {
	source := newStream("MIXED", "orders.>", "dlq")
	source.letter(3, "card refused")
	source.store(2*maxScanned, jetstream.RawStreamMsg{Subject: "orders.new"})
	source.letter(1, "card refused")
	watchLetters(t, source, func(_ *DeadLetters, next func() state.State) {
		for range 3 {
			require.Equal(t, state.Red, next().Level)
			source.store(1, jetstream.RawStreamMsg{Subject: "orders.new"})
		}
		require.Equal(t, "4 dead letters that nobody has looked at.", next().Sentence)
	})
}

// An older state of a stream that was restored is counted again.
func TestDeadLettersOfARestoredStream(t *testing.T) {
	source := newStream("DLQ", "dlq")
	restore := func(last uint64) {
		source.remove(func(m *jetstream.RawStreamMsg) bool { return m.Sequence > last })
		source.mu.Lock()
		source.info.State.LastSeq = last
		source.mu.Unlock()
		source.store(0, jetstream.RawStreamMsg{})
	}
	source.store(20, jetstream.RawStreamMsg{Subject: "dlq"})
	watchLetters(t, source, func(_ *DeadLetters, next func() state.State) {
		require.Equal(t, state.Green, next().Level)
		restore(5)
		source.letter(3, "card refused")
		require.Equal(t, "3 dead letters that nobody has looked at.", next().Sentence)
		restore(7)
		require.Equal(t, "2 dead letters that nobody has looked at.", next().Sentence)
		restore(5)
		require.Equal(t, state.Green, next().Level)
	})
}

// A search that finds no dead letter says nothing about the messages that it has not read.
func TestNoDeadLetterAmongSamples(t *testing.T) {
	const sampled = "No dead letter was found. In 1 stream the first, the last and some messages were looked at."
	order := jetstream.RawStreamMsg{Subject: "orders.new"}
	source := newStream("MIXED", ">")
	source.store(20, order)
	watchLetters(t, source, func(d *DeadLetters, next func() state.State) {
		require.Equal(t, state.State{Level: state.Green, Word: "none", Sentence: "No dead letter was found."}, next())
		source.reads()
		source.store(300, order)
		require.Equal(t, state.Green, next().Level)
		require.Equal(t, 300, source.reads(), "of a stream that was read to its end, only new messages are read")
		source.store(1000, order)
		require.Equal(t, state.Idle, next().Level)
		time.Sleep(probeEvery)
		require.Equal(t, state.Green, next().Level, "more are read from time to time")
		source.store(maxScanned+1, order)
		require.Equal(t, state.State{Level: state.Idle, Word: "none", Sentence: sampled}, next())
		time.Sleep(probeEvery)
		next()
		source.reads()
		require.Equal(t, state.Idle, next().Level)
		require.Zero(t, source.reads(), "nothing has changed")
		overview := d.Overview(t.Context(), Request{})
		require.Equal(t, view.Plain, overview.ProblemTone)
		require.Equal(t, sampled, overview.Problem)
	})
	mixed := newStream("MIXED", ">")
	mixed.store(1000, order)
	mixed.letter(3, "card refused")
	mixed.store(2*maxScanned, order)
	watchLetters(t, mixed, func(_ *DeadLetters, next func() state.State) { require.Equal(t, sampled, next().Sentence) })
}

// Each stream is looked at in the end, however many there are, and whatever the server did not answer.
func TestStreamsThatWereNotLookedAt(t *testing.T) {
	source := &manyStreams{storedStream: newStream("DLQ", "dlq"), before: 2 * probesAtOnce}
	source.letter(1, "card refused")
	watchLetters(t, source, func(_ *DeadLetters, next func() state.State) {
		require.Equal(t, "1 dead letter that nobody has looked at.", next().Sentence)
	})
	away := newStream("DLQ", "dlq")
	away.letter(1, "card refused")
	silent := &silentStream{storedStream: away}
	silent.away.Store(true)
	watchLetters(t, silent, func(_ *DeadLetters, next func() state.State) {
		require.Equal(t, state.State{Word: "not known", Sentence: "Not all streams could be searched for dead letters."}, next())
		silent.away.Store(false)
		require.Equal(t, state.Red, next().Level)
	})
}

// A quiet stream is looked at, however often others change, and no state is an all-clear before.
func TestQuietStreams(t *testing.T) {
	const busy, missed = 20, "Not all streams could be searched for dead letters."
	source := &manyStreams{storedStream: newStream("ZDLQ", "a", "b", "c", "dlq"), before: busy, growing: 1}
	source.letter(3, "card refused")
	source.store(2*maxScanned, jetstream.RawStreamMsg{Subject: "a"})
	watchLetters(t, source, func(_ *DeadLetters, next func() state.State) {
		found := next()
		for range 10 {
			require.Contains(t, []state.Level{state.Red, state.Unknown}, found.Level)
			found = next()
		}
		require.Equal(t, state.Red, found.Level)
	})
	for _, after := range []int{0, letterWindow + 1, 2 * maxScanned} {
		once := &silentStream{storedStream: newStream("DLQ", "dlq", "orders.new")}
		once.away.Store(true)
		once.letter(1, "card refused")
		once.store(after, jetstream.RawStreamMsg{Subject: "orders.new"})
		watchLetters(t, once, func(_ *DeadLetters, next func() state.State) {
			require.Equal(t, state.State{Word: "not known", Sentence: missed}, next())
			once.away.Store(false)
			require.Equal(t, state.Red, next().Level)
		})
	}
}

// manyStreams lists many other streams before its stream, with the same messages but for the dead letters.
type manyStreams struct {
	*storedStream
	before int
	// growing is how many messages each of the others gets before each answer.
	growing, grown uint64
}

func (m *manyStreams) Streams(ctx context.Context) ([]*jetstream.StreamInfo, error) {
	all, err := m.storedStream.Streams(ctx)
	m.grown += m.growing
	for i := range m.before {
		other := *all[0]
		other.State.LastSeq, other.State.Msgs = other.State.LastSeq+m.grown, other.State.Msgs+m.grown
		other.Config.Name = "OTHER-" + strconv.Itoa(i)
		all = append(all, &other)
	}
	slices.Reverse(all)
	return all, err
}

func (m *manyStreams) Messages(ctx context.Context, info *jetstream.StreamInfo, from uint64, subject string, n int) ([]*jetstream.RawStreamMsg, error) {
	found, err := m.storedStream.Messages(ctx, info, from, subject, n)
	if info.Config.Name != m.info.Config.Name && len(found) > 0 {
		found = []*jetstream.RawStreamMsg{{Subject: "orders.new", Sequence: found[0].Sequence}}
	}
	return found, err
}

// silentStream is listed, and answers no request for messages while it is away.
type silentStream struct {
	*storedStream
	away atomic.Bool
}

func (s *silentStream) Messages(ctx context.Context, info *jetstream.StreamInfo, from uint64, subject string, n int) ([]*jetstream.RawStreamMsg, error) {
	if s.away.Load() {
		return nil, errors.New("no answer")
	}
	return s.storedStream.Messages(ctx, info, from, subject, n)
}

// A count that is not complete, or fails, is no all-clear.
func TestDeadLettersThatAreNotKnown(t *testing.T) {
	source := newStream("DLQ", "dlq")
	source.letter(10_500, "card refused")
	watchLetters(t, source, func(_ *DeadLetters, next func() state.State) {
		require.Equal(t, "10,000+ dead letters that nobody has looked at.", next().Sentence)
	})
	broken := &brokenStream{storedStream: newStream("DLQ", "dlq")}
	broken.letter(1, "card refused")
	broken.store(letterWindow, jetstream.RawStreamMsg{Subject: "dlq"})
	synctest.Test(t, func(t *testing.T) {
		s := sample.New()
		defer s.Close()
		d := NewDeadLetters(s, broken, operation.NewRunner(slog.New(slog.DiscardHandler)), nil, NewMarks())
		synctest.Wait()
		require.Equal(t, state.Unknown, d.letters(d.latest.Get().Value).Of().Level)
	})
}

// brokenStream answers the first request for messages only.
type brokenStream struct {
	*storedStream
	asked int
}

func (b *brokenStream) Messages(ctx context.Context, info *jetstream.StreamInfo, from uint64, subject string, n int) ([]*jetstream.RawStreamMsg, error) {
	if b.asked++; b.asked > 1 {
		return nil, errors.New("no answer")
	}
	return b.storedStream.Messages(ctx, info, from, subject, n)
}

// Somebody who has looked at the failures is named, and later failures are red again. The marks outlive the process.
func TestLookedAt(t *testing.T) {
	source := newStream("DLQ", "dlq")
	source.letter(3, "card refused")
	kept := keptMarks{}
	shown := func(seq string) url.Values { return url.Values{"shown": {seq}} }
	watchLetters(t, source, func(d *DeadLetters, next func() state.State) {
		require.NoError(t, d.marks.Restore(t.Context(), kept))
		require.Equal(t, state.Red, next().Level)
		open := func() *view.Page {
			page, err := d.list(t.Context(), Request{Query: url.Values{}, Now: time.Now(), User: "admin"})
			require.NoError(t, err)
			return page
		}
		form := url.Values{"by": {"ada"}}
		for _, field := range open().Action("seen").Fields {
			if field.Hidden {
				form.Set(field.Name, field.Value)
			}
		}
		source.letter(1, "the user has not seen this one")
		outcome, err := open().Action("seen").Do(t.Context(), form) // a POST builds the page again
		require.NoError(t, err)
		require.Equal(t, "Marked as looked at by ada. Failures that come later are not.", outcome.Text)
		require.Equal(t, "1 dead letter that nobody has looked at.", next().Sentence)
		_, err = open().Action("seen").Do(t.Context(), url.Values{})
		require.ErrorContains(t, err, "is no sequence that a page has shown")
		_, err = open().Action("seen").Do(t.Context(), shown("99"))
		require.NoError(t, err)
		require.Equal(t, "Somebody has looked at all of 4 dead letters.", next().Sentence)
		require.Contains(t, open().Parts[0].Lines[0], "admin has looked at all failures up to number 4, 20")

		named, err := d.list(t.Context(), Request{Query: url.Values{}, Now: time.Now(), User: "eve"})
		require.NoError(t, err)
		form.Set("shown", "4")
		outcome, err = named.Action("seen").Do(t.Context(), form)
		require.NoError(t, err)
		require.Equal(t, "Marked as looked at by eve. Failures that come later are not.", outcome.Text, "nobody signs for another")
		// The page of the first stream is another one's by the time that the form is sent.
		form.Set("object", "dead letters of ANOTHER")
		_, err = named.Action("seen").Do(t.Context(), form)
		require.ErrorContains(t, err, "This page is that of dead letters of DLQ now. Nothing was marked")
		for _, action := range d.allActions(Request{}, &source.info, letterFilter{Stream: "DLQ"}) {
			_, err = action.Do(t.Context(), url.Values{"stream": {"ANOTHER"}})
			require.ErrorContains(t, err, "This page is that of stream DLQ now. Nothing was changed")
		}
		filtered, err := d.list(t.Context(), Request{Query: url.Values{"reason": {"card"}}, Now: time.Now(), User: "eve"})
		require.NoError(t, err)
		require.Nil(t, filtered.Action("seen"), "a filter hides some")

		*d.marks = *NewMarks() // as after a restart
		kept["seen.x"] = &jetstream.RawStreamMsg{Data: []byte("not JSON")}
		require.NoError(t, d.marks.Restore(t.Context(), kept))
		require.Equal(t, state.Idle, next().Level)
		source.letter(1, "new")
		require.Equal(t, state.Red, next().Level)
		source.mu.Lock()
		source.info.Created = time.Unix(1, 0)
		source.mu.Unlock()
		require.Equal(t, "5 dead letters that nobody has looked at.", next().Sentence, "another stream of the same name has no mark")

		require.NoError(t, d.marks.Restore(t.Context(), noMarks{kept}))
		_, err = open().Action("seen").Do(t.Context(), shown("6"))
		require.ErrorIs(t, err, errNoMarks)
		require.Equal(t, state.Red, next().Level, "a mark that is not stored does not count")
	})
}

// The reasons that several dead letters have are links with their number, and a time can be chosen by its name.
func TestReasonsAndTimesOfDeadLetters(t *testing.T) {
	source := newStream("DLQ", "dlq")
	watchLetters(t, source, func(d *DeadLetters, next func() state.State) {
		source.letter(3, "card refused")
		source.letter(5, "no stock")
		source.letter(1, "only once")
		next()
		list := func(q url.Values) (*view.Page, error) { return d.list(t.Context(), Request{Query: q, Now: time.Now()}) }
		page, err := list(url.Values{})
		require.NoError(t, err)
		var reasons []string
		for _, fact := range page.Parts[0].Facts {
			reasons = append(reasons, fact.Name+": "+fact.Value.Text+" "+fact.Value.Href)
		}
		require.Equal(t, []string{
			"no stock: 5 deadletters?reason=no+stock&stream=DLQ", "card refused: 3 deadletters?reason=card+refused&stream=DLQ",
		}, reasons)
		count := func(span string) int {
			page, err := list(url.Values{"span": {span}})
			require.NoError(t, err)
			return len(page.Parts[0].List.Rows)
		}
		require.Equal(t, []int{9, 9, 0}, []int{count("hour"), count("day"), count("yesterday")})
		time.Sleep(2 * time.Hour)
		require.Equal(t, []int{0, 9, 0}, []int{count("hour"), count("day"), count("yesterday")})
		time.Sleep(22*time.Hour + time.Minute)
		require.Equal(t, []int{0, 0, 9}, []int{count("hour"), count("day"), count("yesterday")})
		_, err = list(url.Values{"span": {"yesterdy"}})
		require.ErrorContains(t, err, "yesterdy")
	})
}

// slowStream takes a while to answer each request for messages.
type slowStream struct{ *storedStream }

func (s slowStream) Messages(ctx context.Context, info *jetstream.StreamInfo, from uint64, subject string, n int) ([]*jetstream.RawStreamMsg, error) {
	time.Sleep(70 * time.Millisecond)
	return s.storedStream.Messages(ctx, info, from, subject, n)
}

// New dead letters are red at once, also while a count that took long is not made again.
func TestNewDeadLettersBetweenTwoCounts(t *testing.T) {
	source := slowStream{newStream("DLQ", "dlq")}
	source.letter(600, "card refused")
	remove := func(seq uint64) { source.remove(func(m *jetstream.RawStreamMsg) bool { return m.Sequence == seq }) }
	watchLetters(t, source, func(d *DeadLetters, next func() state.State) {
		next()
		require.Equal(t, state.Red, next().Level)
		page, err := d.list(t.Context(), Request{Query: url.Values{}, Now: time.Now()})
		require.NoError(t, err)
		_, err = page.Action("seen").Do(t.Context(), url.Values{"shown": {"600"}})
		require.NoError(t, err)
		remove(300)
		require.Equal(t, "Somebody has looked at all of 599 dead letters.", next().Sentence)
		remove(301)
		source.letter(1, "new")
		require.Equal(t, "1 dead letter that nobody has looked at.", next().Sentence)
		remove(302)
		source.letter(1, "new")
		require.Equal(t, "2 dead letters that nobody has looked at.", next().Sentence)
		time.Sleep(time.Minute)
		next()
		require.Len(t, d.latest.Get().Value[0].letters, 599, "what was deleted is counted in the end")
	})
}

// An operation on dead letters ends where another stream has the name of its stream.
func TestAnOperationEndsWithItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &requeued{storedStream: newStream("DLQ", "dlq")}
		source.letter(20, "card refused")
		s, runner := sample.New(), operation.NewRunner(slog.New(slog.DiscardHandler))
		defer s.Close()
		d := NewDeadLetters(s, source, runner, nil, NewMarks())
		s.Go(runner.Run)
		synctest.Wait()
		page, err := d.list(t.Context(), Request{Query: url.Values{"reason": {"card"}}, Now: time.Now()})
		require.NoError(t, err)
		_, err = page.Action("purge-all").Do(t.Context(), url.Values{"rate": {"1"}})
		require.NoError(t, err)
		time.Sleep(4500 * time.Millisecond)
		synctest.Wait()
		source.mu.Lock()
		source.info.Created = time.Unix(1, 0)
		source.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		all, err := runner.Operations(t.Context())
		require.NoError(t, err)
		require.Equal(t, "cancelled", all[0].State)
		require.Equal(t, []string{"It ended early: not found: stream DLQ was deleted and created again"}, all[0].Notes)
		require.Len(t, source.deleted, all[0].Done)
		require.InDelta(t, 5, all[0].Done, 1)
	})
}
