package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
)

// account is an account with consumers that can be changed.
type account struct {
	ConsumerSource

	mu     sync.Mutex
	all    []*jetstream.ConsumerInfo
	away   error
	refuse map[string]error
	calls  []string
}

func newAccount(n int, paused bool) *account {
	a := &account{refuse: map[string]error{}}
	for i := range n {
		a.all = append(a.all, &jetstream.ConsumerInfo{Stream: "S", Name: fmt.Sprintf("c%04d", i), Paused: paused})
	}
	return a
}

func (a *account) Consumers(context.Context) (all []*jetstream.ConsumerInfo, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.all {
		clone := *one
		all = append(all, &clone)
	}
	return all, a.away
}

func (a *account) change(verb, name string, do func(i int)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, verb+" "+name)
	if err := errors.Join(a.away, a.refuse[name]); err != nil {
		return err
	}
	do(slices.IndexFunc(a.all, func(one *jetstream.ConsumerInfo) bool { return one.Name == name }))
	return nil
}

func (a *account) PauseConsumer(_ context.Context, _, name string, until time.Time) (*jetstream.ConsumerPauseResponse, error) {
	return nil, a.change("pause until "+until.UTC().Format(time.TimeOnly), name, func(i int) { a.all[i].Paused = true })
}

func (a *account) ResumeConsumer(_ context.Context, _, name string) (*jetstream.ConsumerPauseResponse, error) {
	return nil, a.change("resume", name, func(i int) { a.all[i].Paused = false })
}

func (a *account) Reset(_ context.Context, _, name string, seq uint64) error {
	return a.change(fmt.Sprintf("reset to %d", seq), name, func(int) {})
}

func (a *account) DeleteConsumer(_ context.Context, _, name string) error {
	return a.change("delete", name, func(i int) { a.all = slices.Delete(a.all, i, i+1) })
}

func (a *account) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func (a *account) called() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

// desk is where an operator uses a list.
type desk struct {
	t       *testing.T
	page    Func
	runner  *operation.Runner
	sampler *sample.Sampler
}

// sitting has a desk with a list in virtual time.
func sitting(t *testing.T, open func(s *sample.Sampler, r *operation.Runner) Func, do func(d *desk)) {
	synctest.Test(t, func(t *testing.T) {
		s, r := sample.New(), operation.NewRunner(slog.New(slog.DiscardHandler))
		defer s.Close()
		d := &desk{t, open(s, r), r, s}
		s.Go(r.Run)
		synctest.Wait()
		do(d)
	})
}

func consumersOf(a *account) func(s *sample.Sampler, r *operation.Runner) Func {
	return func(s *sample.Sampler, r *operation.Runner) Func { return NewConsumers(s, a, r).Pages["consumers"] }
}

// action is an action of the list with a filter; nil: the list does not offer it.
func (d *desk) action(query, name string) *view.Action {
	d.t.Helper()
	q, err := url.ParseQuery(query)
	require.NoError(d.t, err)
	page, err := d.page(d.t.Context(), Request{Query: q, Now: time.Now()})
	require.NoError(d.t, err)
	return page.Action(name)
}

// begin starts an operation with the form as it is on the page of the dry run, and some other values.
func (d *desk) begin(a *view.Action, values ...string) view.Outcome {
	d.t.Helper()
	form := url.Values{}
	for _, f := range a.Fields {
		form.Set(f.Name, f.Value)
	}
	for i := 0; i < len(values); i += 2 {
		form.Set(values[i], values[i+1])
	}
	out, err := a.Do(d.t.Context(), form)
	require.NoError(d.t, err)
	return out
}

// later is the operation after some time.
func (d *desk) later(wait time.Duration) operation.Operation {
	d.t.Helper()
	time.Sleep(wait)
	synctest.Wait()
	all := d.operations()
	require.Len(d.t, all, 1)
	return all[0]
}

func (d *desk) operations() []operation.Operation {
	d.t.Helper()
	all, err := d.runner.Operations(d.t.Context())
	require.NoError(d.t, err)
	return all
}

// An action that changes what the filter matches is done to all that matched, at the rate, and to no other.
func TestAllThatMatch(t *testing.T) {
	a := newAccount(600, true)
	a.all[599].Paused = false
	sitting(t, consumersOf(a), func(d *desk) {
		resume := d.action("state=paused&from=50&q=c", "resume-all")
		preview := resume.Preview(d.t.Context(), url.Values{})
		require.Equal(t, "That is 599 consumers at this moment: S/c0000, S/c0001, S/c0002, S/c0003, S/c0004, …. Nothing has been changed yet.", preview)
		require.Contains(t, resume.Confirm, "Resume all consumers that match name c, state paused.")
		require.Empty(t, a.called())
		out := d.begin(resume)
		require.Equal(t, 599, out.Count)
		require.Equal(t, "Began to resume consumers: 599 objects.", out.Text)
		op := d.later(4500 * time.Millisecond)
		require.Equal(t, operation.Running, op.State)
		require.Equal(t, "consumers that match name c, state paused", op.What)
		require.InDelta(t, 200, op.Done, 51, "50 a second, as of the last save")
		op = d.later(10 * time.Second)
		require.Equal(t, []any{"done", 599, 599, 0}, []any{op.State, op.Matched, op.Done, op.Skipped})
		require.Empty(t, op.Notes)
		calls := a.called()
		slices.Sort(calls)
		require.Len(t, calls, 599)
		require.Len(t, slices.Compact(calls), 599)
		require.NotContains(t, calls, "resume c0599")
		require.Nil(t, d.action("q=c0599", "resume-all"), "it is not paused")
	})
}

// Each action is that of the page of the object.
func TestActionsForAll(t *testing.T) {
	for _, one := range []struct {
		action string
		danger bool
		values []string
		call   string
	}{
		{"pause-all", false, nil, "pause until 01:00:00 c0000"},
		{"pause-all", false, []string{"for", "15m"}, "pause until 00:15:00 c0000"},
		{"pause-all", false, []string{"until", "2000-01-02T03:04"}, "pause until 03:04:00 c0000"},
		{"reset-all", true, nil, "reset to 0 c0000"},
		{"delete-all", true, []string{"rate", ""}, "delete c0000"},
	} {
		a := newAccount(3, false)
		sitting(t, consumersOf(a), func(d *desk) {
			action := d.action("q=c0", one.action)
			require.Equal(t, one.danger, action.Danger)
			require.Equal(t, one.danger, strings.Contains(action.Confirm, "This cannot be undone."))
			d.begin(action, one.values...)
			require.Equal(t, 3, d.later(3*time.Second).Done)
			require.Contains(t, a.called(), one.call)
			require.Len(t, a.called(), 3)
		})
	}
	sitting(t, consumersOf(newAccount(3, false)), func(d *desk) {
		require.Nil(t, d.action("", "delete-all"), "there is no filter")
		require.Equal(t, "delete", d.action("q=c", "delete-all").Word)
		for _, wrong := range []url.Values{{"for": {"x"}}, {"for": {"1h"}, "rate": {"0"}}, {"until": {"1999-01-01T00:00"}}} {
			_, err := d.action("", "pause-all").Do(d.t.Context(), wrong)
			p, _ := errors.AsType[*Problem](err)
			require.Equal(t, http.StatusBadRequest, p.Status, wrong)
		}
		require.Empty(t, d.operations())
	})
}

// Objects that refuse are skipped, with the first reasons, and the others are done. None is tried twice.
func TestRefusals(t *testing.T) {
	a := newAccount(20, false)
	for i := range 7 {
		a.refuse[fmt.Sprintf("c%04d", i)] = errors.New("it is locked")
	}
	a.refuse["c0006"] = context.DeadlineExceeded
	sitting(t, consumersOf(a), func(d *desk) {
		d.begin(d.action("", "pause-all"), "rate", "1")
		a.set(func() { a.all = a.all[:19] }) // another operator has deleted one
		op := d.later(time.Minute)
		require.Equal(t, []any{"done", 12, 8}, []any{op.State, op.Done, op.Skipped})
		require.Len(t, op.Notes, 6)
		require.Contains(t, op.Notes[0], "The first reasons:")
		require.Contains(t, op.Notes[1], "S/c0000: Nothing was changed, since NATS refused the action: it is locked")
		require.Contains(t, op.Notes[1], "it is locked")
		require.Len(t, a.called(), 19)
	})
}

// A consumer that was deleted and created again since an operation began is another one, and stays as it is.
func TestAnotherConsumerOfTheSameName(t *testing.T) {
	a := newAccount(3, false)
	for _, one := range a.all {
		one.Created = time.Unix(100, 0)
	}
	sitting(t, consumersOf(a), func(d *desk) {
		d.begin(d.action("", "pause-all"), "rate", "1")
		a.set(func() { a.all[2].Created = time.Unix(200, 0) }) // its turn is 2 s after the first one's
		op := d.later(time.Minute)
		require.Equal(t, []any{"done", 2, 1}, []any{op.State, op.Done, op.Skipped})
		require.Contains(t, op.Notes, "S/c0002: it was deleted and created again")
		require.Equal(t, []string{"pause until 01:00:00 c0000", "pause until 01:00:00 c0001"}, a.called())
	})
}

func TestCancelOfAll(t *testing.T) {
	a := newAccount(500, false)
	sitting(t, consumersOf(a), func(d *desk) {
		d.begin(d.action("q=c", "delete-all"), "rate", "10")
		op := d.later(5 * time.Second)
		require.NoError(t, op.Cancel(d.t.Context()))
		op = d.later(time.Minute)
		require.Equal(t, "cancelled", op.State)
		require.InDelta(t, 50, op.Done, 2)
		require.Len(t, a.called(), op.Done)
		require.Len(t, a.all, 500-op.Done)
	})
}

// While the source does not answer, no operation starts, and one that runs waits and does nothing twice.
func TestAllWhileTheSourceIsAway(t *testing.T) {
	a := newAccount(100, false)
	sitting(t, consumersOf(a), func(d *desk) {
		pause := d.action("", "pause-all")
		a.set(func() { a.away = errors.New("no servers") })
		require.Equal(t, "How many these are is not known now, so nothing can begin: NATS does not answer: no servers.",
			pause.Preview(d.t.Context(), url.Values{}))
		_, err := pause.Do(d.t.Context(), url.Values{"for": {"1h"}})
		p, _ := errors.AsType[*Problem](err)
		require.Equal(t, http.StatusBadGateway, p.Status)
		require.Nil(t, d.action("", "pause-all"))
		require.Empty(t, d.operations())

		a.set(func() { a.away = nil })
		d.sampler.Refresh()
		synctest.Wait()
		d.begin(d.action("", "pause-all"), "rate", "10")
		d.later(2900 * time.Millisecond)
		a.set(func() { a.away = errors.New("no servers") })
		op := d.later(time.Minute)
		calls := len(a.called())
		require.Equal(t, operation.Running, op.State)
		require.Contains(t, op.Notes[0], "It waits, and goes on when the system answers: nothing was done: NATS does not answer: no servers")
		d.later(time.Minute)
		require.Len(t, a.called(), calls)
		a.set(func() { a.away = nil })
		op = d.later(time.Minute)
		require.Equal(t, "done", op.State)
		require.Equal(t, 100, op.Done+op.Skipped)
		tried := a.called()
		slices.Sort(tried)
		require.Len(t, tried, 100)
		require.Len(t, slices.Compact(tried), 100)
	})
}

// shelf is a feed with partitions, of which half are sealed, the last is complete, and failures hold the one before.
type shelf struct {
	FeedSource

	mu    sync.Mutex
	all   []feed.Partition
	calls []string
}

func newShelf(n int) *shelf {
	s := &shelf{}
	for i := range n {
		s.all = append(s.all, feed.Partition{ID: fmt.Sprintf("p%05d", i), Status: feed.Available, Gate: i % 3, Sealed: i%2 == 1})
	}
	s.all[n-1].Status, s.all[n-2].Status = feed.Complete, feed.Failed
	return s
}

func (s *shelf) open(sampler *sample.Sampler, r *operation.Runner) Func {
	return NewFeed(sampler, func(context.Context) (FeedSource, error) { return s, nil }, nil, r).Pages["feed"]
}

func (s *shelf) Backlog(context.Context) (feed.Backlog, error) {
	return feed.Backlog{Failed: 7, BlockedPartitions: 1}, nil
}

func (s *shelf) Partitions(_ context.Context, q feed.Query) (found []feed.Partition, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.all {
		if p.ID > q.After && len(found) < q.Limit && (q.Status == "" || q.Status == p.Status) {
			found = append(found, p)
		}
	}
	return found, nil
}

func (s *shelf) Partition(_ context.Context, id string) (feed.Partition, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.named(id), nil
}

// named is a partition. The caller holds the lock.
func (s *shelf) named(id string) *feed.Partition {
	return &s.all[slices.IndexFunc(s.all, func(p feed.Partition) bool { return p.ID == id })]
}

func (s *shelf) change(verb, id string, change func(p *feed.Partition) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, verb+" "+id)
	return change(s.named(id))
}

func (s *shelf) Seal(_ context.Context, id string) error {
	return s.change("seal", id, func(p *feed.Partition) error { p.Sealed = true; return nil })
}

func (s *shelf) ClosePartition(_ context.Context, id string) error {
	return s.change("close", id, func(p *feed.Partition) error {
		if p.Gate == 0 {
			return feed.ErrNotDone
		}
		p.Status = feed.Complete
		return nil
	})
}

func (s *shelf) Reopen(_ context.Context, id string) error {
	return s.change("reopen", id, func(p *feed.Partition) error { p.Status = feed.Available; return nil })
}

func (s *shelf) RetryFailed(_ context.Context, id string, _ ...string) (int, error) {
	return 1, s.change("retry", id, func(p *feed.Partition) error { p.Status = feed.Available; return nil })
}

func (s *shelf) SkipFailed(_ context.Context, id string, _ ...string) (int, error) {
	return 1, s.change("skip", id, func(p *feed.Partition) error { p.Status = feed.Available; return nil })
}

func (s *shelf) Advance(_ context.Context, id string, gate int) error {
	return s.change(fmt.Sprintf("advance to %d", gate), id, func(p *feed.Partition) error {
		if gate < p.Gate {
			return feed.ErrGatePassed
		}
		p.Gate = gate
		return nil
	})
}

func TestAllPartitions(t *testing.T) {
	for _, one := range []struct {
		action        string
		values        []string
		preview       string
		done, skipped int
		first         string
	}{
		{"seal-all", nil, "That is 601 partitions at this moment: p00000, p00002, p00004, p00006, p00008, …. This is not possible for 601 other " +
			"partitions.", 601, 0, "seal p00000"},
		{"close-all", nil, "That is 1,201 partitions at this moment: p00000, p00001, p00002, p00003, p00004, …. This is not possible for 1 other " +
			"partition.", 800, 401, "close p00000"},
		{"advance-all", nil, "That is 1,201 partitions", 1201, 0, "advance to 1 p00000"},
		{"advance-all", []string{"gate", "1"}, "That is 1,201 partitions", 801, 400, "advance to 1 p00000"},
		{"reopen-all", nil, "That is 2 partitions at this moment: p01200, p01201. This is not possible for 1,200 other partitions.", 2, 0, "reopen p01201"},
		{"retry-all", nil, "That is 1 partition at this moment: p01200. Nothing", 1, 0, "retry p01200"},
		{"skip-all", nil, "That is 1 partition at this moment: p01200. Nothing", 1, 0, "skip p01200"},
	} {
		s := newShelf(1202)
		sitting(t, s.open, func(d *desk) {
			action := d.action("after=p00600", one.action)
			require.Contains(t, action.Preview(d.t.Context(), url.Values{}), one.preview)
			d.begin(action, append([]string{"rate", ""}, one.values...)...)
			op := d.later(10 * time.Second)
			require.Equal(t, []any{"done", one.done, one.skipped}, []any{op.State, op.Done, op.Skipped}, one.action)
			require.Contains(t, s.calls, one.first)
			require.Len(t, s.calls, one.done+one.skipped)
		})
	}
	sitting(t, newShelf(maxScanned+2).open, func(d *desk) {
		require.Contains(t, d.action("", "advance-all").Preview(d.t.Context(), url.Values{}), "That is 10,000+ partitions at this moment")
		require.Contains(t, d.action("", "reopen-all").Preview(d.t.Context(), url.Values{}), "This is possible for none of the first 10,000 partitions.")
		require.Contains(t, d.action("", "skip-all").Confirm, "The whole feed has 7 failed items in 1 blocked partition.")
		_, err := d.action("", "advance-all").Do(d.t.Context(), url.Values{"gate": {"x"}})
		require.ErrorContains(t, err, `"x" is no gate.`)
		require.Nil(t, d.action("status=Complete", "seal-all"))
	})
}

// caller is a broker with three consumers and a relay with three receivers. They record what they are asked to change.
type caller struct {
	mu    sync.Mutex
	calls []string
}

func (c *caller) Call(_ context.Context, method, path string, body, answer any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if method != http.MethodGet {
		text, err := json.Marshal(body)
		c.calls = append(c.calls, fmt.Sprintf("%s %s %s", method, path, text))
		return err
	}
	return json.Unmarshal([]byte(map[string]string{
		"/job-status": `{}`,
		"/consumers": `{"Unused": ["empty"], "Result": [{"ChannelID": "a/b", "ConsumerID": "c", "State": "active"},
			{"ChannelID": "a", "ConsumerID": "b/c", "State": "paused"}, {"ChannelID": "a", "ConsumerID": "d", "State": "paused"}]}`,
		"/v1/receivers": `{"items": [{"name": "one", "state": {}}, {"name": "two", "paused": true, "state": {}},
			{"name": "three", "post_endpoint": "http://3", "state": {"disabled": true}}]}`,
	}[path]), answer)
}

func (c *caller) Send(ctx context.Context, method, path string, _ http.Header, body, answer any) (http.Header, error) {
	return nil, c.Call(ctx, method, path, body, answer)
}

func TestAllOfBrokerAndRelay(t *testing.T) {
	for _, one := range []struct {
		page, query, action string
		calls               []string
	}{
		{"broker", "", "pause-all", []string{"POST /channel/a%2Fb/consumer/c/pause null"}},
		{"broker", "state=paused", "resume-all", []string{"POST /channel/a/consumer/b%2Fc/resume null", "POST /channel/a/consumer/d/resume null"}},
		{"relay", "q=o", "resume-all", []string{`PATCH /v1/receivers/two {"paused":false}`}},
		{"relay", "", "pause-all", []string{`PATCH /v1/receivers/one {"paused":true}`, `PATCH /v1/receivers/three {"paused":true}`}},
		{"relay", "state=trouble", "enable-all", []string{`PATCH /v1/receivers/three {"enable":true}`}},
	} {
		c := &caller{}
		open := func(s *sample.Sampler, r *operation.Runner) Func {
			if one.page == "broker" {
				return NewBroker(s, c, r, NewMarks()).Pages["broker"]
			}
			return NewRelay(s, c, r, NewMarks()).Pages["relay"]
		}
		sitting(t, open, func(d *desk) {
			if one.page == "broker" {
				require.Nil(t, d.action("state=unused", "pause-all"), "a channel cannot be paused")
			}
			d.begin(d.action(one.query, one.action))
			require.Equal(t, len(one.calls), d.later(3*time.Second).Done)
			slices.Sort(c.calls)
			require.Equal(t, one.calls, c.calls)
		})
	}
}
