package page

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/alert"
	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/partition"
)

// troubled is a relay, a broker and a feed with one object each, which is red.
type troubled struct {
	FeedSource
	BrokerSource
}

func (troubled) Call(_ context.Context, _, path string, _, answer any) error {
	body := map[string]string{
		"/v1/receivers": `{"items":[{"name":"ci/x","state":{"disabled":true}}]}`,
		"/job-status":   `{}`,
		"/consumers":    `{"Result":[{"ChannelID":"orders","ConsumerID":"billing","State":"paused","PausedBy":"failing"}]}`,
	}[path]
	if body == "" {
		body = `{}`
	}
	return json.Unmarshal([]byte(body), answer)
}

func (troubled) Backlog(context.Context) (feed.Backlog, error) {
	return feed.Backlog{Failed: 1, BlockedPartitions: 1}, nil
}

// Every system says what of it is red, with a page that exists.
func TestJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sample.New()
		defer s.Close()
		runner := operation.NewRunner(slog.New(slog.DiscardHandler))
		account := newAccount(1, false)
		account.all[0].Cluster = &jetstream.ClusterInfo{} // without a leader
		consumers := NewConsumers(s, account, runner)
		stuck := &sets{}
		stuck.all.Store(&[]PartitionSet{{Name: "stuck", Stream: "S", Partitions: []partition.Partition{{Number: 1, Pending: 3}}}})
		dlq := newStream("DLQ", "dlq")
		dlq.letter(1, "card refused")
		relay, broker := NewRelay(s, troubled{}, runner, NewMarks()), NewBroker(s, troubled{}, runner, NewMarks())
		f := NewFeed(s, func(context.Context) (FeedSource, error) { return troubled{}, nil }, nil, runner)
		sets, letters := NewPartitions(s, stuck, consumers), NewDeadLetters(s, dlq, runner, consumers, NewMarks())
		pages := map[string]bool{}
		for _, family := range []map[string]Func{consumers.Pages, sets.Pages, letters.Pages, relay.Pages, broker.Pages, f.Pages} {
			for name := range family {
				pages[name] = true
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		now, stop := context.WithCancel(t.Context())
		stop() // it waits for nothing
		var found []string
		for _, one := range []Summary{consumers, sets, letters, relay, broker, f} {
			judged := one.Overview(now, Request{}).Judged
			require.Equal(t, state.Green, judged.Source.Of(time.Now()).Level)
			require.NotZero(t, judged.At)
			require.Len(t, judged.Objects, 1)
			o := judged.Objects[0]
			require.Equal(t, state.Red, o.State.Level, o.Name)
			u, err := url.Parse(o.Path)
			require.NoError(t, err)
			require.True(t, pages[u.Path], o.Path)
			found = append(found, strings.Join([]string{judged.Source.Name, o.Kind, o.Name, o.Path}, " | "))
		}
		require.Equal(t, []string{
			"NATS | consumer | S/c0000 | consumer?name=c0000&stream=S",
			"NATS | partition set | stuck | set?name=stuck",
			"NATS | dead letters | DLQ | deadletters?stream=DLQ",
			"relay | receiver | ci/x | receiver?name=ci%2Fx",
			"broker | broker consumer | orders/billing | brokerconsumer?channel=orders&consumer=billing",
			"feed | feed | feed | feed",
		}, found)
	})
}

// A value that is not known now is not shown as 0.
func TestValuesThatAreNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sample.New()
		defer s.Close()
		runner := operation.NewRunner(slog.New(slog.DiscardHandler))
		account := newAccount(1, false)
		account.all[0].Cluster = &jetstream.ClusterInfo{} // without a leader
		consumers := NewConsumers(s, account, runner)
		unread := &sets{}
		unread.all.Store(&[]PartitionSet{{Name: "unread", Stream: "S", Err: errors.New("a consumer was deleted")}})
		led := &streams{newStream("S"), []*jetstream.StreamInfo{{Config: jetstream.StreamConfig{Name: "S"}, Cluster: &jetstream.ClusterInfo{}}}}
		messages := NewMessages(s, led, consumers, NewDeadLetters(s, led, runner, consumers, NewMarks()))
		relay, sets := NewRelay(s, forgetful{}, runner, NewMarks()), NewPartitions(s, unread, consumers)
		time.Sleep(time.Minute)
		for name, build := range map[string]Func{
			"consumers": consumers.list, "streams": messages.streams, "sets": sets.list, "set": sets.one, "relay": relay.receivers, "receiver": relay.one,
			"overview": Overview([]Summary{sets, relay}),
		} {
			page, err := build(t.Context(), Request{Query: url.Values{"name": {"unread"}}, Now: time.Now()})
			require.NoError(t, err)
			for _, part := range page.Parts {
				values := []view.Value{}
				for _, fact := range part.Facts {
					values = append(values, fact.Value)
				}
				if part.List != nil {
					require.NotContains(t, part.List.Found, "0 ", name)
					for _, row := range part.List.Rows {
						values = append(values, row.Cells...)
					}
				}
				for _, v := range values {
					require.NotRegexp(t, "^0($| )", v.Text, name)
					require.NotContains(t, v.Title, "Nothing waits", name)
					require.NotContains(t, v.Title, "There is no message", name)
				}
			}
		}
	})
}

// forgetful is a relay that does not know the state of its receiver now.
type forgetful struct{ Caller }

func (forgetful) Call(_ context.Context, _, path string, _, answer any) error {
	if path != "/v1/receivers" {
		return errors.New("not known")
	}
	return json.Unmarshal([]byte(`{"items":[{"name":"unread"}]}`), answer)
}

// A stream whose dead letters are gone is still listed, and so is one that could not be searched. Else it would not be known that it has recovered.
func TestStreamsAreJudged(t *testing.T) {
	away := &silentStream{storedStream: newStream("DLQ", "dlq")}
	watchLetters(t, away, func(d *DeadLetters, next func() state.State) {
		level := func() state.Level {
			next()
			objects := d.Overview(t.Context(), Request{}).Judged.Objects
			require.Len(t, objects, 1)
			require.Equal(t, alert.Object{
				Kind: "dead letters", Name: "DLQ", Path: "deadletters?stream=DLQ", State: objects[0].State,
			}, objects[0])
			return objects[0].State.Level
		}
		require.Equal(t, state.Green, level())
		away.letter(1, "card refused")
		require.Equal(t, state.Red, level())
		away.remove(func(*jetstream.RawStreamMsg) bool { return true })
		require.Equal(t, state.Green, level())
		require.Equal(t, state.Green, level())
		away.away.Store(true)
		away.letter(1, "card refused")
		require.Equal(t, state.Unknown, level())
	})
}
