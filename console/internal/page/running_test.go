package page

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
	workers "github.com/jetpull/jetpull/internal/running"
)

// worked is an account with workers that have a name.
type worked struct {
	*account
	lists     []workers.List
	cancelled []workers.Cancelled
	err       error
}

func (w *worked) Running(context.Context, string, string) ([]workers.List, error) {
	return w.lists, w.err
}

func (w *worked) Cancel(_ context.Context, stream, consumer string, seq uint64) ([]workers.Cancelled, error) {
	w.calls = append(w.calls, stream+"/"+consumer)
	for i := range w.cancelled {
		w.cancelled[i].Cancelled = seq == 7
	}
	return w.cancelled, w.err
}

// The page of a consumer lists what its workers handle, and cancels one of these. "None answered", "none runs" and "not known" differ.
func TestRunningMessagesOfAConsumer(t *testing.T) {
	w := &worked{account: newAccount(1, false)}
	open := func(s *sample.Sampler, r *operation.Runner) Func { return NewConsumers(s, w, r).Pages["consumer"] }
	sitting(t, open, func(d *desk) {
		part := func() view.Part {
			t.Helper()
			p, err := d.page(t.Context(), Request{Query: url.Values{"stream": {"S"}, "name": {"c0000"}}, Now: time.Now()})
			require.NoError(t, err)
			require.Equal(t, "running", p.Parts[1].ID)
			return p.Parts[1]
		}
		require.Contains(t, part().List.Empty, "No worker answered. The consumer may have none")
		require.Empty(t, part().Actions)

		one := workers.Worker{Name: "shipping", Instance: "i", Host: "n1", PID: 12}
		w.lists = []workers.List{{Worker: one, Waiting: 3}}
		require.Contains(t, part().List.Empty, "No worker that answered handles a message")
		require.Empty(t, part().Actions)

		w.lists[0].Running = []workers.Message{
			{Sequence: 9, Subject: "b", Since: time.Now(), Attempt: 2}, {Sequence: 7, Subject: "a", Since: time.Now().Add(-time.Hour), Attempt: 1},
		}
		w.cancelled = []workers.Cancelled{{Worker: one}}
		p := part()
		require.Len(t, p.List.Rows, 2)
		require.Equal(t, "7", p.List.Rows[0].Cells[0].Text, "the longest first")
		require.Equal(t, "n1", p.List.Rows[0].Cells[5].Text)
		require.Len(t, p.Actions, 1)
		cancel := p.Actions[0]
		require.NotEmpty(t, cancel.Confirm)
		require.Equal(t, "S/c0000", cancel.Target)
		refused := func(seq string, status int, want string) {
			t.Helper()
			_, err := cancel.Do(t.Context(), url.Values{"seq": {seq}})
			problem, ok := errors.AsType[*Problem](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, status, problem.Status)
			require.ErrorContains(t, err, want)
		}
		refused("", http.StatusBadRequest, "No message is named")
		refused("x", http.StatusBadRequest, `"x" is no sequence`)
		require.Empty(t, w.calls)
		refused("8", http.StatusConflict, "No handler has message 8: 1 worker answered. Nothing was cancelled.")
		out, err := cancel.Do(t.Context(), url.Values{"seq": {"7"}})
		require.NoError(t, err)
		require.Equal(t, view.Outcome{Count: 1, Text: "Cancelled the handler of message 7, in worker shipping, process 12 on n1."}, out)
		require.Equal(t, []string{"S/c0000", "S/c0000"}, w.calls)
		w.cancelled = nil
		refused("7", http.StatusGatewayTimeout, "Whether the handler of message 7 was cancelled is not known")

		w.err = errors.New("no connection")
		require.True(t, part().Unknown())
		require.Equal(t, "no connection", part().Source.Error)
	})
}
