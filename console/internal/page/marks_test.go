package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
)

// failing is a relay with a receiver, and a broker with a consumer, that have some failures. The last has a number: the relay's list has it, and the
// broker's failed at that second. Behind, neither can list them.
type failing struct {
	n, newest atomic.Int64
	behind    atomic.Bool
}

func (f *failing) Call(_ context.Context, _, path string, _, answer any) error {
	n, at := f.n.Load(), time.Unix(f.newest.Load(), 0).UTC().Format(time.RFC3339)
	path, _, _ = strings.Cut(path, "?")
	if f.behind.Load() && (path == "/v1/failed" || path == "/dead-jobs") {
		return errors.New("the list is behind")
	}
	return json.Unmarshal([]byte(map[string]string{
		"/v1/receivers":                fmt.Sprintf(`{"items":[{"name":"billing","state":{"failed":%d,"refused":0}}]}`, n),
		"/v1/failed":                   fmt.Sprintf(`{"total":%d,"items":[{"id":"%d","time":"1970-01-01T00:00:00Z"}]}`, n, f.newest.Load()),
		"/job-status":                  fmt.Sprintf(`{"ch":{"billing":[{"status":%d,"count":%d}]}}`, 1004, n),
		"/consumers":                   `{"Result":[{"ChannelID":"ch","ConsumerID":"billing","State":"active"}]}`,
		"/channel/ch/consumer/billing": `{"State":"active"}`,
		"/dead-jobs":                   fmt.Sprintf(`{"Result":[{"ID":"1","DeadSince":%q}]}`, at),
	}[path]), answer)
}

func (f *failing) Send(ctx context.Context, method, path string, _ http.Header, body, answer any) (http.Header, error) {
	return nil, f.Call(ctx, method, path, body, answer)
}

// Failures of a receiver or a consumer that somebody has looked at are not red, and later ones are.
func TestFailuresThatWereLookedAt(t *testing.T) {
	f := &failing{}
	f.n.Store(2)
	f.newest.Store(100)
	s := sample.New()
	defer s.Close()
	runner := operation.NewRunner(slog.New(slog.DiscardHandler))
	relay, broker := NewRelay(s, f, runner, NewMarks()), NewBroker(s, f, runner, NewMarks())
	for name, one := range map[string]struct {
		query url.Values
		page  Func
		state func() state.State
		words string
		upTo  string
		looks func(context.Context, Request) Digest
	}{
		"relay": {
			url.Values{"name": {"billing"}},
			relay.one,
			func() state.State { return relay.latest.Next(t.Context()).Value.all[0].now },
			"2 failed messages", "number 100", relay.Overview,
		},
		"broker": {
			url.Values{"channel": {"ch"}, "consumer": {"billing"}},
			broker.one,
			func() state.State { return broker.latest.Next(t.Context()).Value.all[0].now },
			"2 dead jobs", "that of 1970-01-01T00:01:40.000Z", broker.Overview,
		},
	} {
		f.newest.Store(100)
		require.Equal(t, state.Red, one.state().Level, name)
		open := func() *view.Page {
			page, err := one.page(t.Context(), Request{Query: one.query, Now: time.Now(), User: "ada"})
			require.NoError(t, err, name)
			return page
		}
		seen := open().Action("seen")
		require.NotNil(t, seen, name)
		outcome, err := seen.Do(t.Context(), url.Values{"shown": {seen.Fields[0].Value}})
		require.NoError(t, err, name)
		require.Equal(t, "Marked as looked at by ada. Failures that come later are not.", outcome.Text)
		now := one.state()
		require.Equal(t, state.Idle, now.Level, name)
		require.Equal(t, "Somebody has looked at all of "+one.words+"; none waits.", now.Sentence)
		require.Contains(t, strings.Join(open().Parts[0].Lines, " "), "ada has looked at all failures up to "+one.upTo+", 20")
		f.behind.Store(true)
		require.Equal(t, state.Unknown, one.state().Level, "%s: whether there are others is not known", name)
		f.behind.Store(false)
		require.NotEqual(t, view.Bad, one.looks(t.Context(), Request{Now: time.Now()}).ProblemTone)
		f.newest.Store(101) // one was requeued meanwhile, and another has failed
		require.Equal(t, state.Red, one.state().Level, name)
	}
}

// keptMarks keep marks.
type keptMarks map[string]*jetstream.RawStreamMsg

func (k keptMarks) Read(context.Context, string) (map[string]*jetstream.RawStreamMsg, error) {
	return k, nil
}

func (k keptMarks) Put(_ context.Context, key string, data []byte) (uint64, error) {
	k[key] = &jetstream.RawStreamMsg{Data: data}
	return 1, nil
}
func (keptMarks) Update(context.Context, string, []byte, uint64) (uint64, error) { return 0, nil }

// noMarks keeps none.
type noMarks struct{ keptMarks }

func (noMarks) Put(context.Context, string, []byte) (uint64, error) { return 0, errNoMarks }

var errNoMarks = errors.New("no answer")

// Marks of this process that are older than those that were kept make way for them, and others are kept as soon as that is possible.
func TestMarksAreMerged(t *testing.T) {
	m, kept := NewMarks(), keptMarks{}
	earlier := NewMarks()
	require.NoError(t, earlier.Restore(t.Context(), kept))
	mark := func(m *Marks, object, by string, at int64) {
		require.NoError(t, m.Set(t.Context(), markKey(object), look{Object: object, By: by, At: time.Unix(at, 0)}))
	}
	for object, at := range map[string]int64{"a": 10, "b": 10, "c": 10} {
		mark(earlier, object, "earlier", at)
	}
	for object, at := range map[string]int64{"b": 5, "c": 20, "d": 20} {
		mark(m, object, "own", at)
	}
	require.NoError(t, m.Restore(t.Context(), kept))
	later := NewMarks()
	require.NoError(t, later.Restore(t.Context(), kept))
	for _, one := range []*Marks{m, later} {
		for object, by := range map[string]string{"a": "earlier", "b": "earlier", "c": "own", "d": "own"} {
			require.Equal(t, by, one.of(object).By, object)
		}
	}
}
