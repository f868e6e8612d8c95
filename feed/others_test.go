package feed

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTimeZones: processes whose sessions have different time zones agree on leases and on when an item is due.
func TestTimeZones(t *testing.T) {
	t.Parallel()
	dsn := backends[1].fresh(t)
	at := func(zone string) *Store { return openStore(t, dsn+"&timezone="+url.QueryEscape(zone)) }
	east, west := at("Asia/Kolkata"), at("America/Los_Angeles")
	for s, want := range map[*Store]string{east: "Asia/Kolkata", west: "America/Los_Angeles"} {
		var zone string
		require.NoError(t, s.sql.DB.Raw("SHOW timezone").Row().Scan(&zone))
		require.Equal(t, want, zone)
	}
	soon, later := time.Now().Add(time.Minute), time.Now().Add(time.Hour)
	create(t, east, Partition{ID: "held", Sealed: true}, Item{ID: "a"})
	l := leaseOne(t, east, theTerms)
	held, err := west.Partition(t.Context(), l.ID)
	require.NoError(t, err)
	require.WithinRange(t, held.Until, time.Now(), time.Now().Add(time.Hour), "the lease as another zone sees it")
	create(t, east, Partition{ID: "east"}, Item{ID: "now"}, Item{ID: "later", NotBefore: later})
	create(t, west, Partition{ID: "west"}, Item{ID: "now"}, Item{ID: "soon", NotBefore: soon}, Item{ID: "over", NotBefore: time.Now().Add(-time.Minute)})
	var watchers []*running
	h := newHistory(t, east, 4)
	for _, s := range []*Store{east, west} {
		watchers = append(watchers, h.watch(t, s, finish, AutoClose()))
	}
	eventually(t, "all that is due is complete", func() bool {
		return counts(t, east, "east")[0].Complete == 1 && counts(t, west, "west")[0].Complete == 2
	})
	for _, tt := range []struct {
		partition, item string
		due             time.Time
	}{{"east", "later", later}, {"west", "soon", soon}} {
		it, err := west.Item(t.Context(), tt.partition, tt.item)
		require.NoError(t, err)
		require.Equal(t, Available, it.Status)
		require.WithinDuration(t, tt.due, it.NotBefore, time.Second)
	}
	stopAll(t, watchers)
	repeats, _ := h.audit(t)
	require.Zero(t, repeats)
}

// TestRoleWithoutCreate: where another role makes the tables, the role of a watcher needs to read and to change their rows, and no more.
func TestRoleWithoutCreate(t *testing.T) {
	t.Parallel()
	dsn := backends[1].fresh(t)
	admin := openStore(t, dsn)
	role := fmt.Sprintf("feed_role_%d", time.Now().UnixNano())
	for _, statement := range []string{
		"CREATE ROLE " + role + " LOGIN PASSWORD 'feed'",
		"REVOKE CREATE ON SCHEMA public FROM PUBLIC",
		"GRANT USAGE ON SCHEMA public TO " + role,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO " + role,
	} {
		require.NoError(t, admin.sql.DB.Exec(statement).Error)
	}
	t.Cleanup(func() {
		for _, statement := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
			require.NoError(t, admin.sql.DB.Exec(statement).Error)
		}
	})
	as, err := url.Parse(dsn)
	require.NoError(t, err)
	as.User = url.UserPassword(role, "feed")
	s := openStore(t, as.String(), NoMigrate())
	require.ErrorContains(t, s.sql.DB.Exec("CREATE TABLE mine (id int)").Error, "permission denied")
	create(t, s, Partition{ID: "p", Sealed: true}, Item{ID: "fails"}, Item{ID: "a"}, Item{ID: "b", Gate: 1})
	w := startWatcher(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
		if it.ID == "fails" {
			return Response{}, Permanent(fmt.Errorf("no"))
		}
		return done()
	}), AutoClose(), Limits(Limit{Concurrency: 1}))
	awaitPartition(t, s, "p", Failed)
	require.NoError(t, s.Skip(t.Context(), "p"))
	awaitPartition(t, s, "p", Complete)
	require.NoError(t, w.stop(t))
	pruned, err := s.Prune(t.Context(), 0, nil)
	require.NoError(t, err)
	require.NotZero(t, pruned)
}

// TestRowsAreDeletedByOthers: another program deletes items and partitions under a watcher, also those that it works on. The others are
// completed, and what was deleted does not come back.
func TestRowsAreDeletedByOthers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "item", Sealed: true}, Item{ID: "begun"}, Item{ID: "waits", Gate: 1}, Item{ID: "stays", Gate: 1})
		create(t, s, Partition{ID: "partition", Sealed: true}, Item{ID: "begun"}, Item{ID: "waits", Gate: 1})
		create(t, s, Partition{ID: "other", Sealed: true}, Item{ID: "a"}, Item{ID: "b", Gate: 1})
		begun, release := make(chan string, 10), make(chan struct{})
		w := startWatcher(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
			if it.ID == "begun" {
				begun <- it.Partition
				<-release
			}
			return done()
		}), AutoClose(), Lease(time.Second))
		for range 2 {
			<-begun
		}
		for _, statement := range []string{
			"DELETE FROM items WHERE partition_id = 'item' AND id IN ('begun', 'waits')",
			"DELETE FROM items WHERE partition_id = 'partition'",
			"DELETE FROM partitions WHERE id = 'partition'",
		} {
			eventually(t, strings.Fields(statement)[2]+" are deleted", func() bool { return s.sql.DB.Exec(statement).Error == nil })
		}
		close(release)
		awaitPartition(t, s, "item", Complete)
		awaitPartition(t, s, "other", Complete)
		create(t, s, Partition{ID: "partition", Sealed: true}, Item{ID: "new"}) // its ID is free again
		awaitPartition(t, s, "partition", Complete)
		require.NoError(t, w.stop(t))
		items, err := s.Items(t.Context(), Query{})
		require.NoError(t, err)
		var left []string
		for _, it := range items {
			require.Equal(t, Complete, it.Status)
			left = append(left, it.Partition+"/"+it.ID)
		}
		require.ElementsMatch(t, []string{"item/stays", "other/a", "other/b", "partition/new"}, left)
	})
}
