package page

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/partition"
)

// sets are sets of partitions of an account without consumers.
type sets struct {
	all atomic.Pointer[[]PartitionSet]
}

func (s *sets) PartitionSets(context.Context) ([]PartitionSet, error) {
	return *s.all.Load(), nil
}

// overviewOf runs a test with the overview of sets. Later is the page after a time.
func overviewOf(t *testing.T, source *sets, test func(later func(time.Duration) *view.Page)) {
	synctest.Test(t, func(t *testing.T) {
		s := sample.New()
		defer s.Close()
		defer s.Watch()()
		consumers := NewConsumers(s, newAccount(0, false), operation.NewRunner(slog.New(slog.DiscardHandler)))
		p := NewPartitions(s, source, consumers)
		test(func(d time.Duration) *view.Page {
			time.Sleep(d)
			synctest.Wait()
			page, err := Overview([]Summary{p})(t.Context(), Request{Now: time.Now()})
			require.NoError(t, err)
			return page
		})
	})
}

// The overview has the sets of partitions, and the worst partition decides.
func TestOverviewOfSets(t *testing.T) {
	source := &sets{}
	source.all.Store(&[]PartitionSet{})
	overviewOf(t, source, func(later func(time.Duration) *view.Page) {
		require.Empty(t, later(time.Second).Parts, "there is no set")
		owned := partition.Partition{Number: 1, Member: "a"}
		source.all.Store(&[]PartitionSet{
			{Name: "calm", Stream: "S", TTL: time.Minute, Partitions: []partition.Partition{owned}},
			{Name: "stuck", Stream: "S", TTL: time.Minute, Partitions: []partition.Partition{owned, {Number: 2, Pending: 3}}},
		})
		later(time.Second)
		page := later(time.Minute + time.Second)
		require.Equal(t, "In trouble: Overview – jetpull", page.Heading())
		row := page.Parts[0].List.Rows[0]
		require.Equal(t, "stuck", row.Cells[0].Text)
		require.Equal(t, "no owner", row.Cells[1].Text)
		require.Equal(t, "3", row.Cells[3].Text)
		require.Contains(t, row.Cells[4].Text, "Partition 2 has had no owner for longer than the TTL")
	})
}

// A source is judged as all other objects are: amber when it answers late, and red when it has been away for 10 s.
func TestSourceIsJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sample.New()
		defer s.Close()
		defer s.Watch()()
		var slow atomic.Int64
		var away atomic.Bool
		l := sample.Add(s, func(context.Context) (int, error) {
			time.Sleep(time.Duration(slow.Load()))
			if away.Load() {
				return 0, errors.New("no answer")
			}
			return 1, nil
		})
		after := func(d time.Duration) (view.Source, view.Tone) {
			time.Sleep(d)
			synctest.Wait()
			one := source("NATS", l.Get())
			return one, (&view.Page{Parts: []view.Part{{Source: one}}}).Tone()
		}
		one, tone := after(time.Second)
		require.Equal(t, []any{"", view.Plain}, []any{one.Problem, tone})
		slow.Store(int64(2 * time.Second))
		for deadline := time.Now().Add(time.Minute); one.Problem != "NATS took 2 s to answer."; one, tone = after(100 * time.Millisecond) {
			require.True(t, time.Now().Before(deadline), one.Problem)
		}
		require.Equal(t, view.Warn, tone)
		slow.Store(0)
		one, tone = after(15 * time.Second)
		require.Equal(t, []any{"", view.Plain}, []any{one.Problem, tone})
		away.Store(true)
		one, tone = after(9 * time.Second)
		require.Equal(t, []any{"NATS did not answer the last request.", view.Muted}, []any{one.Problem, tone}, "what is shown is old")
		one, tone = after(2 * time.Second)
		require.Contains(t, one.Problem, "NATS does not answer. The first request without an answer began ")
		require.Equal(t, view.Bad, tone)
	})
}
