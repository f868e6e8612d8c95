package alert

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/state"
)

const every = 10 * time.Second

// sources are those that a test looks at.
type sources struct {
	mu      sync.Mutex
	samples []Sample
	events  []any
	full    bool // no event is taken
}

// looked runs a test with sources. Next has them looked at once more, and returns the events of that.
func looked(t *testing.T, n int, test func(s *sources, next func() []any)) {
	synctest.Test(t, func(t *testing.T) {
		s := &sources{samples: make([]Sample, n)}
		latest := make([]func() Sample, n)
		for i := range latest {
			latest[i] = func() Sample {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.samples[i]
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go Run(ctx, every, latest, "production", "https://example.com/ops", func(e any) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.full {
				s.events = append(s.events, e)
			}
			return !s.full
		})
		time.Sleep(time.Second) // each answer comes before a look
		test(s, func() []any {
			time.Sleep(every)
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			events := s.events
			s.events = nil
			return events
		})
		cancel()
		synctest.Wait()
	})
}

// answer has a source answer.
func (s *sources) answer(i int, objects ...Object) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples[i] = Sample{Source: state.Source{Name: "NATS", Answered: now}, At: now, Objects: objects}
}

// fail has the requests to a source fail from now on.
func (s *sources) fail(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples[i].Source.Failing = time.Now()
}

// consumer is a consumer at a level.
func consumer(name string, level state.Level) Object {
	return Object{Kind: "consumer", Name: name, Path: "consumer?name=" + name, State: state.State{Level: level, Sentence: "Level of " + name + "."}}
}

// levels are the levels of looks that follow one another, and what each of them reports; empty: nothing.
type levels []struct {
	level state.Level
	want  string
}

func TestRedAndBack(t *testing.T) {
	for name, all := range map[string]levels{
		"red and back": {
			{state.Green, ""},
			{state.Red, ""},
			{state.Red, typeRed},
			{state.Red, ""},
			{state.Green, ""},
			{state.Green, typeRecovered},
			{state.Green, ""},
			{state.Red, ""},
			{state.Red, typeRed},
		},
		"red once":               {{state.Red, ""}, {state.Green, ""}, {state.Red, ""}, {state.Amber, ""}, {state.Idle, ""}},
		"not red once":           {{state.Red, ""}, {state.Red, typeRed}, {state.Amber, ""}, {state.Red, ""}, {state.Amber, ""}, {state.Red, ""}},
		"not red in another way": {{state.Red, ""}, {state.Red, typeRed}, {state.Amber, ""}, {state.Idle, typeRecovered}},
		"not known":              {{state.Unknown, ""}, {state.Unknown, ""}, {state.Unknown, ""}},
		"not known after red":    {{state.Red, ""}, {state.Red, typeRed}, {state.Unknown, ""}, {state.Unknown, ""}, {state.Unknown, ""}, {state.Red, ""}},
		"not known between": {
			{state.Red, ""}, {state.Unknown, ""}, {state.Red, typeRed}, {state.Green, ""}, {state.Unknown, ""}, {state.Green, typeRecovered},
		},
	} {
		t.Run(name, func(t *testing.T) {
			looked(t, 1, func(s *sources, next func() []any) {
				for i, one := range all {
					s.answer(0, consumer("calm", state.Green), consumer("a", one.level))
					var got []string
					for _, e := range next() {
						got = append(got, e.(event).Type)
						require.Equal(t, "a", e.(event).Object)
					}
					if one.want == "" {
						require.Empty(t, got, i)
					} else {
						require.Equal(t, []string{one.want}, got, i)
					}
				}
			})
		})
	}
}

func TestBody(t *testing.T) {
	body := func(events []any) string {
		require.Len(t, events, 1)
		data, err := json.Marshal(events[0])
		require.NoError(t, err)
		return string(data)
	}
	looked(t, 1, func(s *sources, next func() []any) {
		s.answer(0, consumer("a", state.Red))
		require.Empty(t, next())
		s.answer(0, consumer("a", state.Red))
		const rest = `"object":"a","kind":"consumer","sentence":"Level of a.","since":"2000-01-01T00:00:10Z",` +
			`"url":"https://example.com/ops/consumer?name=a","environment":"production"}`
		require.Equal(t, `{"type":"console.red",`+rest, body(next()))
		s.answer(0, consumer("a", state.Green))
		require.Empty(t, next())
		s.answer(0, consumer("a", state.Green))
		require.Equal(t, `{"type":"console.recovered",`+rest, body(next()), "since when it was red")
	})
}

// An answer counts once, and an object counts as gone only if two answers do not list it. It has not recovered then.
func TestAnswers(t *testing.T) {
	looked(t, 2, func(s *sources, next func() []any) {
		s.answer(1)
		s.answer(0, consumer("a", state.Red))
		require.Empty(t, next())
		require.Empty(t, next(), "there is no other answer")
		s.answer(0, consumer("a", state.Red))
		require.Len(t, next(), 1)
		s.answer(0)
		require.Empty(t, next())
		require.Empty(t, next(), "there is no other answer")
		s.answer(0, consumer("a", state.Unknown))
		require.Empty(t, next())
		s.answer(0)
		events := next()
		require.Len(t, events, 1)
		require.Equal(t, []string{typeGone, "a"}, []string{events[0].(event).Type, events[0].(event).Object})
		s.answer(0)
		require.Empty(t, next())
		s.answer(0, consumer("a", state.Red))
		require.Empty(t, next())
		s.answer(0)
		require.Empty(t, next(), "it was red once")
		s.answer(0, consumer("a", state.Red))
		require.Empty(t, next())
	})
}

// A source that does not answer becomes red, once for all that it is asked for. Nothing else does.
func TestSourceAway(t *testing.T) {
	looked(t, 2, func(s *sources, next func() []any) {
		s.answer(0, consumer("a", state.Red))
		s.answer(1, consumer("b", state.Green))
		require.Empty(t, next())
		s.answer(0, consumer("a", state.Red))
		require.Len(t, next(), 1)
		s.fail(1)
		require.Empty(t, next(), "9 s")
		require.Empty(t, next(), "19 s")
		s.fail(0)
		events := next()
		require.Len(t, events, 1, "29 s")
		e := events[0].(event)
		require.Equal(t, []string{typeRed, "source", "NATS", "https://example.com/ops/overview"}, []string{e.Type, e.Kind, e.Object, e.URL})
		require.Contains(t, e.Sentence, "NATS does not answer.")
		require.Empty(t, next())
		s.answer(0, consumer("a", state.Red))
		require.Empty(t, next(), "it does not answer all requests")
		s.answer(1)
		require.Empty(t, next())
		events = next()
		require.Len(t, events, 1)
		require.Equal(t, []string{typeRecovered, "NATS"}, []string{events[0].(event).Type, events[0].(event).Object})
	})
}

// An event that is not taken, because too many wait, is sent by a later look.
func TestEventsThatAreNotTaken(t *testing.T) {
	looked(t, 1, func(s *sources, next func() []any) {
		s.full = true
		for range 3 {
			s.answer(0, consumer("a", state.Red))
			require.Empty(t, next())
		}
		s.mu.Lock()
		s.full = false
		s.mu.Unlock()
		s.answer(0, consumer("a", state.Red))
		require.Len(t, next(), 1)
		s.answer(0, consumer("a", state.Red))
		require.Empty(t, next())
		for _, full := range []bool{true, true, false} {
			s.mu.Lock()
			s.full = full
			s.mu.Unlock()
			s.answer(0, consumer("a", state.Green))
			events := next()
			require.Equal(t, full, len(events) == 0, "a recovery, too")
		}
		s.answer(0, consumer("a", state.Green))
		require.Empty(t, next())
	})
}
