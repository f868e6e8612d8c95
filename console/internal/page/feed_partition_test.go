package page

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
)

// vast is a feed with a partition of which only the items that wait at its gate can be listed in time, and a database that loses the answers to changes.
type vast struct {
	*shelf
	answer error
}

func (v *vast) CountsUpTo(_ context.Context, _ string, most int) (map[int]feed.Counts, bool, error) {
	return map[int]feed.Counts{0: {Failed: 3, Available: most}}, true, nil
}

func (v *vast) Items(ctx context.Context, q feed.Query) ([]feed.Item, error) {
	if q.Gate != nil && q.Status == feed.Available {
		return []feed.Item{{ID: "waits"}}, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (v *vast) SkipFailed(context.Context, string, ...string) (int, error) { return 0, v.answer }

func TestAVastPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sample.New()
		defer s.Close()
		v := &vast{shelf: newShelf(3)}
		pages := NewFeed(s, func(context.Context) (FeedSource, error) { return v, nil }, nil, operation.NewRunner(slog.New(slog.DiscardHandler))).
			Pages
		build := func(q url.Values) (*view.Page, error) {
			ctx, cancel := context.WithTimeout(t.Context(), sample.Patience)
			defer cancel()
			return pages["partition"](ctx, Request{Query: q, Now: time.Now()})
		}
		p, err := build(url.Values{"id": {"p00001"}})
		require.NoError(t, err)
		require.Equal(t, view.Bad, p.Parts[0].ProblemTone)
		require.Contains(t, p.Parts[0].List.Found, "more than 10,000 items")
		require.Equal(t, "10,000+", p.Parts[0].List.Rows[0].Cells[3].Text)
		require.Equal(t, "waits", p.Parts[1].List.Rows[0].Cells[0].Text)
		complete, err := build(url.Values{"id": {"p00001"}, "status": {"Complete"}})
		require.NoError(t, err)
		require.Contains(t, complete.Parts[1].Source.Error, "too many items")
		skip := p.Action("skip")
		for err, want := range map[error]string{
			feed.ErrNotDone:                        "nothing was changed",
			errors.New("commit: connection reset"): "not known",
			context.DeadlineExceeded:               "not known",
		} {
			v.answer = err
			_, got := skip.Do(t.Context(), nil)
			problem, ok := errors.AsType[*Problem](got)
			require.True(t, ok)
			require.Contains(t, problem.Text, want)
			require.Equal(t, want == "not known", problem.Status == http.StatusBadGateway)
		}
	})
}

// The failed partitions are the first of the list, on whatever page they would be by their names.
func TestFailedPartitionsAreFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sample.New()
		defer s.Close()
		shelf := newShelf(2*pageSize + 10)
		shelf.all[pageSize].Status = feed.Failed
		build := shelf.open(s, operation.NewRunner(slog.New(slog.DiscardHandler)))
		names := func(q url.Values) (all []string, pages int) {
			for q != nil {
				p, err := build(t.Context(), Request{Query: q, Now: time.Now()})
				require.NoError(t, err)
				for _, row := range p.Parts[1].List.Rows {
					all = append(all, row.Cells[0].Text)
				}
				q = p.Parts[1].List.Next
				pages++
			}
			return all, pages
		}
		all, pages := names(url.Values{})
		require.Equal(t, 3, pages)
		require.Len(t, all, len(shelf.all))
		require.Equal(t, []string{"p00050", "p00108", "p00000"}, all[:3])
		require.Equal(t, "p00109", all[109], "the complete one")
		all, _ = names(url.Values{"sort": {"status"}, "desc": {"1"}})
		require.Equal(t, []string{"p00109", "p00000"}, all[:2])
		all, _ = names(url.Values{"sort": {"name"}})
		require.Equal(t, []string{"p00000", "p00001"}, all[:2])
		require.Len(t, all, len(shelf.all))
		p, err := build(t.Context(), Request{Query: url.Values{"sort": {"name"}, "desc": {"1"}}, Now: time.Now()})
		require.NoError(t, err)
		require.False(t, p.Parts[1].List.Descending, "a feed has no such order")
	})
}
