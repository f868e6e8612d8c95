package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
)

// failureLists are a relay and a broker with lists of failures, of which each tenth has another reason.
type failureLists struct {
	mu  sync.Mutex
	n   int // in the relay's list
	err error
}

func (l *failureLists) set(n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n, l.err = n, err
}

func (l *failureLists) Call(_ context.Context, _, path string, _, answer any) error {
	u, err := url.Parse(path)
	if err != nil {
		return err
	}
	asked := u.Query()
	limit, _ := strconv.Atoi(asked.Get("limit")) // the pages send a number
	switch u.Path {
	case "/v1/failed":
		l.mu.Lock()
		last, failure := l.n, l.err
		l.mu.Unlock()
		if at := asked.Get("cursor"); at != "" {
			last, _ = strconv.Atoi(at)
		}
		var items []map[string]any
		for i := last; i > 0 && len(items) < limit; i-- {
			reason := "PERMANENT"
			if i%10 == 0 {
				reason = "EXPIRED"
			}
			if one := asked.Get("reason"); one == "" || one == reason {
				items = append(items, map[string]any{"id": strconv.Itoa(i - 1), "message_id": fmt.Sprint("m", i), "reason": reason})
			}
		}
		cursor := ""
		if len(items) == limit {
			cursor = items[limit-1]["id"].(string)
		}
		data, err := json.Marshal(map[string]any{"items": items, "cursor": cursor})
		return errors.Join(failure, err, json.Unmarshal(data, answer))
	case "/dead-jobs":
		return json.Unmarshal([]byte(`{"Result":[{"ID":"1","Reason":"REFUSED"},{"ID":"2","Reason":"REFUSED"},{"ID":"3","Reason":"GIVEN_UP"}]}`), answer)
	}
	return json.Unmarshal([]byte(`{}`), answer)
}

func (l *failureLists) Send(ctx context.Context, method, path string, _ http.Header, body, answer any) (http.Header, error) {
	return nil, l.Call(ctx, method, path, body, answer)
}

// The list of failures has the number of each reason, of those that it shows.
func TestReasonsOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sample.New()
		defer s.Close()
		l := &failureLists{n: 30}
		runner := operation.NewRunner(slog.New(slog.DiscardHandler))
		f := Failures([]Summary{NewRelay(s, l, runner, NewMarks()), NewBroker(s, l, runner, NewMarks())})
		open := func(query string) (reasons []string) {
			q, err := url.ParseQuery(query)
			require.NoError(t, err)
			page, err := f.Pages["failed"](t.Context(), Request{Query: q, Now: time.Now()})
			require.NoError(t, err)
			for _, part := range page.Parts {
				for _, fact := range part.Facts {
					reasons = append(reasons, part.Title+": "+fact.Name+": "+fact.Value.Text+" "+fact.Value.Href)
				}
			}
			return reasons
		}
		all := []string{
			"Relay: permanent error: 27 failed?reason=PERMANENT", "Relay: expired: 3 failed?reason=EXPIRED", "Broker: refused: 2 failed?reason=REFUSED",
			"Broker: given up: 1 failed?reason=GIVEN_UP",
		}
		require.Equal(t, all, open(""))
		require.Equal(t, []string{all[0] + "&system=relay", all[1] + "&system=relay"}, open("system=relay"), "the filter stays")
		require.Empty(t, open("reason=EXPIRED"), "there is one")
		require.Equal(t, all[2:], open("relay=7"), "it is the second page of the relay")

		l.set(5000, nil)
		require.Equal(t, "Relay: permanent error: 90+ failed?reason=PERMANENT", open("")[0], "of the newest 100")
		page, err := f.Pages["failed"](t.Context(), Request{Query: url.Values{}, Now: time.Now()})
		require.NoError(t, err)
		require.Equal(t, []string{"The reasons are counted among the newest 100 failures."}, page.Parts[0].Lines)
		require.Empty(t, page.Parts[1].Lines, "the broker has no more than these")
		l.set(100, errors.New("no answer"))
		require.Equal(t, all[2:], open(""), "the relay does not answer")
	})
}

// Reasons that are the text of an error are grouped if several failures have them.
func TestGrouped(t *testing.T) {
	show := func(reason string, n view.Value) view.Fact { return view.Fact{Name: reason, Value: n} }
	names := func(least int) (all string) {
		for _, fact := range grouped(map[string]int{"": 9, "a": 1, "b": 2, "c": 2}, least, false, show) {
			all += fact.Name + fact.Value.Text + " "
		}
		return all
	}
	require.Equal(t, "b2 c2 ", names(2))
	require.Equal(t, "b2 c2 a1 ", names(1))
}
