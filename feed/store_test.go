package feed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

var theTerms = termsOf("me")

func termsOf(owner string) sqlstore.Terms { return sqlstore.Terms{Owner: owner, Length: time.Minute} }

func leaseOf(partition string, epoch int64) sqlstore.Lease {
	return sqlstore.Lease{ID: partition, Epoch: epoch}
}

// leasesOf are the leases that were taken.
func leasesOf(taken []sqlstore.Taken) []sqlstore.Lease {
	return sqlstore.Map(taken, func(l *sqlstore.Taken) sqlstore.Lease { return l.Lease })
}

// takenOf are leases to release.
func takenOf(leases ...sqlstore.Lease) []sqlstore.Taken {
	return sqlstore.Map(leases, func(l *sqlstore.Lease) sqlstore.Taken { return sqlstore.Taken{Lease: *l} })
}

// ids are the items' IDs.
func ids(items []Item) (list []string) {
	for _, it := range items {
		list = append(list, it.ID)
	}
	return list
}

func counts(t *testing.T, s *Store, partition string) map[int]Counts {
	t.Helper()
	c, err := s.Counts(t.Context(), partition)
	require.NoError(t, err)
	return c
}

// leaseOne leases the one partition that has work.
func leaseOne(t *testing.T, s *Store, as sqlstore.Terms) sqlstore.Lease {
	t.Helper()
	leases, err := s.sql.Acquire(t.Context(), as, 1, nil)
	require.NoError(t, err)
	require.Len(t, leases, 1)
	return leases[0].Lease
}

func fetchAll(t *testing.T, s *Store, as sqlstore.Terms, l sqlstore.Lease) []Item {
	t.Helper()
	rows, err := s.sql.Fetch(t.Context(), as, []sqlstore.Want{{Lease: l, Limit: 1000, Bytes: 1 << 30}})
	require.NoError(t, err)
	return sqlstore.Map(rows, itemOf)
}

// end saves an item as what its only attempt made it.
func end(t *testing.T, s *Store, as sqlstore.Terms, l sqlstore.Lease, it Item, status Status) bool {
	t.Helper()
	r := sqlstore.Result{Lease: l, Item: it.ID, Version: it.Version, Gate: it.Gate, Status: string(status), Attempt: 1}
	if status == Complete {
		r.Steps = 1
	}
	if status == Failed {
		r.Errors = new(`["broken"]`)
	}
	saved, err := s.sql.Save(t.Context(), as, []sqlstore.Result{r})
	require.NoError(t, err)
	return saved[0]
}

// state is a partition in one of the states that an operation may meet.
type state struct {
	name  string
	build func(t *testing.T, s *Store)
}

var states = []state{
	{"missing", func(*testing.T, *Store) {}},
	{"open", func(t *testing.T, s *Store) { create(t, s, Partition{ID: "p", Gate: 1}, Item{ID: "a", Gate: 1}) }},
	{"empty", func(t *testing.T, s *Store) { create(t, s, Partition{ID: "p", Gate: 1}) }},
	{"sealed", func(t *testing.T, s *Store) {
		create(t, s, Partition{ID: "p", Gate: 1, Sealed: true}, Item{ID: "a", Gate: 1})
	}},
	{"done", func(t *testing.T, s *Store) {
		create(t, s, Partition{ID: "p", Gate: 1}, Item{ID: "a", Gate: 1})
		l := leaseOne(t, s, theTerms)
		require.True(t, end(t, s, theTerms, l, fetchAll(t, s, theTerms, l)[0], Complete))
		settleAs(t, s, theTerms, l, sqlstore.Idle)
	}},
	{"failed", func(t *testing.T, s *Store) {
		create(t, s, Partition{ID: "p", Gate: 1}, Item{ID: "a", Gate: 1})
		l := leaseOne(t, s, theTerms)
		require.True(t, end(t, s, theTerms, l, fetchAll(t, s, theTerms, l)[0], Failed))
		settleAs(t, s, theTerms, l, sqlstore.Blocked)
	}},
	{"closed", func(t *testing.T, s *Store) {
		create(t, s, Partition{ID: "p", Gate: 1})
		require.NoError(t, s.ClosePartition(t.Context(), "p"))
	}},
}

func create(t *testing.T, s *Store, p Partition, items ...Item) Partition {
	t.Helper()
	p, err := s.CreatePartition(t.Context(), p, items...)
	require.NoError(t, err)
	return p
}

func settleAs(t *testing.T, s *Store, as sqlstore.Terms, l sqlstore.Lease, want sqlstore.Outcome) int {
	t.Helper()
	got, gate, err := s.sql.Settle(t.Context(), as, l)
	require.NoError(t, err)
	require.Equal(t, want, got)
	return gate
}

// TestOperations is every operation on every state of a partition: the error, and what the partition is after it.
func TestOperations(t *testing.T) {
	t.Parallel()
	insert := func(gate int) func(context.Context, *Store) error {
		return func(ctx context.Context, s *Store) error { return s.Insert(ctx, "p", Item{ID: "b", Gate: gate}) }
	}
	operations := []struct {
		name string
		do   func(context.Context, *Store) error
		// want is, for each of states, the error and the partition's status, gate and version after it.
		want [7]string
	}{
		{"create", func(ctx context.Context, s *Store) error {
			_, err := s.CreatePartition(ctx, Partition{ID: "p", Gate: 2}, Item{Gate: 2})
			return err
		}, [7]string{"Available 2 1", "duplicate", "duplicate", "duplicate", "duplicate", "duplicate", "duplicate"}},
		{"insert", insert(1), [7]string{"not found", "Available 1 1", "Available 1 1", "closed", "Available 1 3", "Available 1 4", "closed"}},
		{"insert above", insert(5), [7]string{"not found", "Available 1 1", "Available 1 1", "closed", "Available 1 3", "Failed 1 3", "closed"}},
		{"insert below", insert(0), [7]string{"not found", "passed", "passed", "closed", "passed", "passed", "closed"}},
		{
			"insert twice", func(ctx context.Context, s *Store) error {
				return s.Insert(ctx, "p", Item{ID: "c", Gate: 1}, Item{ID: "a", Gate: 1})
			},
			[7]string{"not found", "duplicate", "Available 1 1", "closed", "duplicate", "duplicate", "closed"},
		},
		{
			"seal", func(ctx context.Context, s *Store) error { return s.Seal(ctx, "p") },
			[7]string{
				"not found", "Available 1 2 sealed", "Available 1 2 sealed", "Available 1 1 sealed", "Available 1 4 sealed", "Failed 1 4 sealed",
				"Complete 1 3 sealed",
			},
		},
		{
			"close", func(ctx context.Context, s *Store) error { return s.ClosePartition(ctx, "p") },
			[7]string{"not found", "not done", "Complete 1 2", "not done", "Complete 1 4", "not done", "Complete 1 2"},
		},
		{
			"advance", func(ctx context.Context, s *Store) error { return s.Advance(ctx, "p", 2) },
			[7]string{"not found", "not done", "Available 2 2", "not done", "Available 2 4", "not done", "closed"},
		},
		{
			"advance to where it is", func(ctx context.Context, s *Store) error { return s.Advance(ctx, "p", 1) },
			[7]string{"not found", "Available 1 1", "Available 1 1", "Available 1 1 sealed", "Available 1 3", "Failed 1 3", "Complete 1 2"},
		},
		{
			"advance back", func(ctx context.Context, s *Store) error { return s.Advance(ctx, "p", 0) },
			[7]string{"not found", "passed", "passed", "passed", "passed", "passed", "passed"},
		},
		{
			"retry all", func(ctx context.Context, s *Store) error { return s.Retry(ctx, "p") },
			[7]string{"not found", "Available 1 1", "Available 1 1", "Available 1 1 sealed", "Available 1 3", "Available 1 4", "Complete 1 2"},
		},
		{
			"retry one", func(ctx context.Context, s *Store) error { return s.Retry(ctx, "p", "a") },
			[7]string{"not found", "conflict", "not found", "conflict", "conflict", "Available 1 4", "not found"},
		},
		{
			"retry one that is not there", func(ctx context.Context, s *Store) error { return s.Retry(ctx, "p", "a", "x") },
			[7]string{"not found", "conflict", "not found", "conflict", "conflict", "not found", "not found"},
		},
		{
			"skip all", func(ctx context.Context, s *Store) error { return s.Skip(ctx, "p") },
			[7]string{"not found", "Available 1 1", "Available 1 1", "Available 1 1 sealed", "Available 1 3", "Available 1 4", "Complete 1 2"},
		},
		{
			"reopen", func(ctx context.Context, s *Store) error { return s.Reopen(ctx, "p") },
			[7]string{"not found", "Available 1 1", "Available 1 1", "Available 1 2", "Available 1 3", "Available 1 4", "Available 1 3"},
		},
	}
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		for _, op := range operations {
			t.Run(op.name, func(t *testing.T) {
				for i, st := range states {
					require.NoError(t, s.sql.DB.Exec("DELETE FROM items").Error)
					require.NoError(t, s.sql.DB.Exec("DELETE FROM partitions").Error)
					st.build(t, s)
					before := dump(t, s)
					err := op.do(t.Context(), s)
					refused := map[string]error{
						"not found": ErrNotFound, "duplicate": ErrDuplicate, "closed": ErrClosed, "passed": ErrGatePassed,
						"not done": ErrNotDone, "conflict": ErrConflict,
					}[op.want[i]]
					if refused != nil {
						require.ErrorIs(t, err, refused, st.name)
						require.Equal(t, before, dump(t, s), "%s: what is refused changes nothing", st.name)
						continue
					}
					require.NoError(t, err, st.name)
					p, err := s.Partition(t.Context(), "p")
					require.NoError(t, err)
					got := fmt.Sprintf("%s %d %d", p.Status, p.Gate, p.Version)
					if p.Sealed {
						got += " sealed"
					}
					require.Equal(t, op.want[i], got, st.name)
				}
			})
		}
	})
}

// dump is all that is in the tables.
func dump(t *testing.T, s *Store) string {
	t.Helper()
	partitions, err := s.Partitions(t.Context(), Query{})
	require.NoError(t, err)
	items, err := s.Items(t.Context(), Query{})
	require.NoError(t, err)
	return fmt.Sprintf("%+v %+v", partitions, items)
}

func TestOpenRefuses(t *testing.T) {
	for _, tt := range []struct{ dsn, want string }{
		{"", "DSN"},
		{"feed.db", "DSN"},
		{"oracle://u:hidden@h/d", "DSN"},
		{"sqlite:", "DSN"},
		{"postgres://u:hidden@127.0.0.1:1/d", "127.0.0.1"},
		{"postgres://u:hid den@127.0.0.1:x/d", "DSN"},
		{"postgres://127.0.0.1:1/d?user=u&password=hidden", "127.0.0.1"},
		{"sqlserver://u:hidden@127.0.0.1:1?database=d&dial+timeout=1", "127.0.0.1"},
		{"sqlite:/nowhere/at/all/feed.db", "nowhere"},
	} {
		_, err := Open(t.Context(), tt.dsn)
		require.Error(t, err, tt.dsn)
		require.ErrorContains(t, err, tt.want)
		require.NotContains(t, err.Error(), "hidden")
		require.NotContains(t, err.Error(), "hid den")
	}
	_, err := NewStore(t.Context(), nil)
	require.ErrorIs(t, err, ErrInvalid)
}

// TestPostgresSettings: a connection has them unless the DSN says otherwise.
func TestPostgresSettings(t *testing.T) {
	t.Parallel()
	dsn := backends[1].fresh(t)
	for _, tt := range []struct{ with, name, want string }{
		{"", "idle_in_transaction_session_timeout", "10s"},
		{"&idle_in_transaction_session_timeout=250", "idle_in_transaction_session_timeout", "250ms"},
		{"", "jit", "off"},
		{"&jit=on", "jit", "on"},
	} {
		var got string
		require.NoError(t, openStore(t, dsn+tt.with, NoMigrate()).sql.DB.Raw("SHOW "+tt.name).Row().Scan(&got))
		require.Equal(t, tt.want, got, tt.with)
	}
	pool, err := openStore(t, dsn, NoMigrate()).sql.DB.DB()
	require.NoError(t, err)
	age := reflect.ValueOf(pool).Elem().FieldByName("maxLifetime").Int()
	require.Equal(t, 30*time.Minute, time.Duration(age), "a connection is not used for ever")
}

// TestMemoryOutlivesCancelledCalls: a call whose context ends, at whatever moment, does not lose a database in memory.
func TestMemoryOutlivesCancelledCalls(t *testing.T) {
	t.Parallel()
	s := openStore(t, "sqlite::memory:")
	create(t, s, Partition{ID: "p"}, Item{ID: "a"})
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, s.sql.DB.Callback().Create().Before("gorm:create").Register("cancel", func(tx *gorm.DB) {
		cancel()
		if tx.Statement.Context.Err() == nil {
			return // the transaction goes on
		}
		eventually(t, "the transaction is rolled back", func() bool {
			_, err := tx.Statement.ConnPool.ExecContext(t.Context(), "SELECT 1")
			return errors.Is(err, sql.ErrTxDone)
		})
	}))
	if err := s.Insert(ctx, "p", Item{ID: "b"}); err != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err := s.Partition(t.Context(), "p")
	require.NoError(t, err)
	require.ErrorIs(t, s.Insert(ctx, "p", Item{ID: "c"}), context.Canceled)
	_, err = s.Items(ctx, Query{Partition: "p"})
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Item(t.Context(), "p", "a")
	require.NoError(t, err)
}

func TestMigrationsRunOnceAndByMany(t *testing.T) {
	t.Parallel()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			dsn := b.fresh(t)
			s, err := Open(t.Context(), dsn, NoMigrate())
			require.NoError(t, err)
			_, err = s.Partitions(t.Context(), Query{})
			require.Error(t, err, "NoMigrate makes no tables")
			require.NoError(t, s.Close())
			many := 6
			if b.name == "sqlserver" {
				many = 1
			}
			var wg sync.WaitGroup
			for range many {
				wg.Go(func() {
					s, err := Open(t.Context(), dsn)
					if err == nil {
						err = s.Close()
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			s = openStore(t, dsn)
			create(t, s, Partition{ID: "p"}, Item{ID: "a"})
			require.NoError(t, s.Migrate(t.Context()))
			_, err = s.Item(t.Context(), "p", "a")
			require.NoError(t, err)
		})
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
		data := []byte{0, 1, 0xff, '\'', '\n'}
		p := create(t, s, Partition{ID: "p/ä ö", Gate: 3, Sealed: true}, Item{ID: "x", Gate: 3, Data: data}, Item{ID: "X", Gate: 4, NotBefore: at},
			Item{Gate: 3})
		require.Equal(t, Partition{ID: "p/ä ö", Gate: 3, Status: Available, Version: 1, Sealed: true}, p)
		got, err := s.Partition(t.Context(), p.ID)
		require.NoError(t, err)
		require.Equal(t, p, got)
		items, err := s.Items(t.Context(), Query{Partition: p.ID})
		require.NoError(t, err)
		require.Equal(t, []string{"x", "X"}, ids(items)[:2])
		require.NotEmpty(t, items[2].ID)
		require.Equal(t, data, items[0].Data)
		require.True(t, at.Equal(items[1].NotBefore), items[1].NotBefore)
		require.Equal(t, int64(1), items[0].Version)
		require.Equal(t, map[int]Counts{3: {Available: 2}, 4: {Available: 1}}, counts(t, s, p.ID))
		for most, want := range map[int]map[int]Counts{
			1: {3: {Available: 1}}, 2: {3: {Available: 2}}, 3: {3: {Available: 2}, 4: {Available: 1}},
		} {
			got, more, err := s.CountsUpTo(t.Context(), p.ID, most)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, most < 3, more)
		}
		_, _, err = s.CountsUpTo(t.Context(), p.ID, 0)
		require.ErrorIs(t, err, ErrInvalid)
		_, _, err = s.CountsUpTo(t.Context(), "none", 1)
		require.ErrorIs(t, err, ErrNotFound)

		page, err := s.Items(t.Context(), Query{Partition: p.ID, After: "x", Limit: 1})
		require.NoError(t, err)
		require.Equal(t, []string{"X"}, ids(page))
		gate := 4
		page, err = s.Items(t.Context(), Query{Partition: p.ID, Gate: &gate, Status: Available})
		require.NoError(t, err)
		require.Equal(t, []string{"X"}, ids(page))
		for _, q := range []Query{{After: "x"}, {Limit: -1}, {Status: "Running"}} {
			_, err = s.Items(t.Context(), q)
			require.ErrorIs(t, err, ErrInvalid)
		}
		for _, id := range []string{"a\nb", " a", strings.Repeat("x", 256), "a\xff"} {
			_, err := s.CreatePartition(t.Context(), Partition{ID: id})
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorIs(t, s.Insert(t.Context(), p.ID, Item{ID: id}), ErrClosed)
		}
		for _, year := range []int{0, 10_000} {
			_, err := s.CreatePartition(t.Context(), Partition{ID: "far"}, Item{NotBefore: time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)})
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, "NotBefore")
		}
		create(t, s, Partition{ID: "far"}, Item{NotBefore: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)})
		items, err = s.Items(t.Context(), Query{Partition: "far"})
		require.NoError(t, err)
		require.Equal(t, 9999, items[0].NotBefore.Year())
		create(t, s, Partition{ID: "B"})
		create(t, s, Partition{ID: "a"})
		list, err := s.Partitions(t.Context(), Query{After: "B", Limit: 1})
		require.NoError(t, err)
		require.Equal(t, "a", list[0].ID, "the order is that of the bytes")
	})
}

func TestManyItemsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		const batch = 200 // rows of an INSERT
		var items []Item
		for i := range 3*batch + 7 {
			items = append(items, Item{ID: fmt.Sprint(i)})
		}
		create(t, s, Partition{ID: "p"}, items...)
		got, err := s.Items(t.Context(), Query{Partition: "p"})
		require.NoError(t, err)
		require.Equal(t, ids(items), ids(got))
		// The last of many is refused: none of them is there.
		more := []Item{}
		for i := range batch {
			more = append(more, Item{ID: fmt.Sprint("more", i)})
		}
		require.ErrorIs(t, s.Insert(t.Context(), "p", append(more, Item{ID: "5"})...), ErrDuplicate)
		require.Equal(t, map[int]Counts{0: {Available: len(items)}}, counts(t, s, "p"))
	})
}

// TestImpossibleIDs: what no ID can be is not found, also where the database takes no such text.
func TestImpossibleIDs(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		ctx := t.Context()
		create(t, s, Partition{ID: "p"}, Item{ID: "a"})
		for _, id := range []string{"a\x00", "\xff", ""} {
			_, err := s.Partition(ctx, id)
			require.ErrorIs(t, err, ErrNotFound)
			_, err = s.Counts(ctx, id)
			require.ErrorIs(t, err, ErrNotFound)
			for _, in := range []string{id, "p"} {
				_, err = s.Item(ctx, in, id)
				require.ErrorIs(t, err, ErrNotFound)
				require.ErrorIs(t, s.Retry(ctx, in, id), ErrNotFound)
			}
			require.ErrorIs(t, s.Insert(ctx, id, Item{}), ErrNotFound)
			require.ErrorIs(t, s.Seal(ctx, id), ErrNotFound)
		}
		_, err := s.Items(ctx, Query{Partition: "p", After: "\xff"})
		require.ErrorIs(t, err, ErrNotFound)
		_, err = s.Items(ctx, Query{Partition: "\xff"})
		require.ErrorIs(t, err, ErrInvalid)
		for _, q := range []Query{{Partition: "p\x00"}, {After: "\xff"}} {
			_, err = s.Partitions(ctx, q)
			require.ErrorIs(t, err, ErrInvalid)
		}
	})
}
