package feed

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/glebarez/sqlite"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// callersTx is a transaction of a caller of the Store, with what executes a statement in it, commits it
// and rolls it back.
type callersTx struct {
	tx               any
	exec             func(query string) error
	commit, rollback func() error
}

// plain is the driver of pgx without what database/sql need not know: as with other drivers of PostgreSQL, no parameter is an array.
type plain struct{ driver.Connector }

func (p plain) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	whole := conn.(*stdlib.Conn)
	return struct {
		driver.Conn
		driver.ConnBeginTx
		driver.ExecerContext
		driver.QueryerContext
	}{conn, whole, whole, whole}, nil
}

func begins(t *testing.T, s *Store, dsn string) map[string]func() callersTx {
	t.Helper()
	ctx, db := context.WithoutCancel(t.Context()), s.sql.DB
	if file, is := strings.CutPrefix(dsn, "sqlite:"); is {
		// As a caller's own pool, which waits for the watchers of other processes.
		path, _, _ := strings.Cut(file, "?")
		var err error
		db, err = gorm.Open(sqlite.Open("file:"+path+"?_txlock=immediate&_pragma=busy_timeout(60000)"), &gorm.Config{})
		require.NoError(t, err)
	}
	pool, err := db.DB()
	require.NoError(t, err)
	if db != s.sql.DB {
		t.Cleanup(func() { require.NoError(t, pool.Close()) })
	}
	kinds := map[string]func() callersTx{
		"sql": func() callersTx {
			tx, err := pool.BeginTx(ctx, nil)
			require.NoError(t, err)
			return callersTx{tx, func(q string) error { _, err := tx.Exec(q); return err }, tx.Commit, tx.Rollback}
		},
		"gorm": func() callersTx {
			tx := db.Session(&gorm.Session{NewDB: true}).Begin()
			require.NoError(t, tx.Error)
			return callersTx{
				tx, func(q string) error { return tx.Exec(q).Error }, func() error { return tx.Commit().Error },
				func() error { return tx.Rollback().Error },
			}
		},
	}
	if strings.HasPrefix(dsn, "postgres") {
		config, err := pgx.ParseConfig(dsn)
		require.NoError(t, err)
		other := sql.OpenDB(plain{stdlib.GetConnector(*config)})
		t.Cleanup(func() { require.NoError(t, other.Close()) })
		kinds["plain"] = func() callersTx {
			tx, err := other.BeginTx(ctx, nil)
			require.NoError(t, err)
			return callersTx{tx, func(q string) error { _, err := tx.Exec(q); return err }, tx.Commit, tx.Rollback}
		}
		kinds["pgx"] = func() callersTx {
			conn, err := pgx.Connect(ctx, dsn)
			require.NoError(t, err)
			tx, err := conn.Begin(ctx)
			require.NoError(t, err)
			return callersTx{
				tx, func(q string) error { _, err := tx.Exec(ctx, q); return err },
				func() error { return errors.Join(tx.Commit(ctx), conn.Close(ctx)) },
				func() error { return errors.Join(tx.Rollback(ctx), conn.Close(ctx)) },
			}
		}
	}
	return kinds
}

// TestTransactions: what is done in a caller's transaction is there once that commits, with the wake-up, and not if it is
// rolled back.
func TestTransactions(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, dsn string) {
		ctx := t.Context()
		require.NoError(t, s.sql.DB.Exec("CREATE TABLE orders (id varchar(20) PRIMARY KEY)").Error)
		for kind, begin := range begins(t, s, dsn) {
			t.Run(kind, func(t *testing.T) {
				c := begin()
				require.NoError(t, c.exec("INSERT INTO orders VALUES ('rolled back')"))
				p, err := s.CreatePartitionTx(ctx, c.tx, Partition{ID: kind}, Item{ID: "a"})
				require.NoError(t, err)
				require.Equal(t, kind, p.ID)
				require.NoError(t, s.InsertTx(ctx, c.tx, kind, Item{ID: "b", Gate: 1, Data: []byte("\x00\xff")}))
				require.NoError(t, c.rollback())
				_, err = s.Partition(ctx, kind)
				require.ErrorIs(t, err, ErrNotFound)
				left, err := s.Items(ctx, Query{Partition: kind})
				require.NoError(t, err)
				require.Empty(t, left)

				create(t, s, Partition{ID: "first" + kind}, Item{ID: "a"})
				got, w := processed(t, s, rarely)
				awaitItem(t, got, "first"+kind+"/a") // it has begun
				c = begin()
				require.NoError(t, c.exec("INSERT INTO orders VALUES ('"+kind+"')"))
				_, err = s.CreatePartitionTx(ctx, c.tx, Partition{ID: kind}, Item{ID: "a"})
				require.NoError(t, err)
				require.NoError(t, c.commit())
				awaitItem(t, got, kind+"/a")
				c = begin()
				require.NoError(t, s.InsertTx(ctx, c.tx, kind, Item{ID: "b", Data: []byte("\x00\xff")}, Item{ID: "c", Gate: 1}))
				require.NoError(t, s.SealTx(ctx, c.tx, kind))
				require.ErrorIs(t, s.InsertTx(ctx, c.tx, kind, Item{ID: "d"}), ErrClosed)
				require.NoError(t, c.commit())
				awaitItem(t, got, kind+"/b")
				awaitItem(t, got, kind+"/c")
				require.NoError(t, w.stop(t))
				it, err := s.Item(ctx, kind, "b")
				require.NoError(t, err)
				require.Equal(t, "\x00\xff", string(it.Data))
				p, err = s.Partition(ctx, kind)
				require.NoError(t, err)
				require.True(t, p.Sealed)

				c = begin()
				_, err = s.CreatePartitionTx(ctx, c.tx, Partition{ID: kind})
				require.ErrorIs(t, err, ErrDuplicate)
				require.NoError(t, c.rollback())
				c = begin()
				require.ErrorIs(t, s.InsertTx(ctx, c.tx, "first"+kind, Item{ID: "new"}, Item{ID: "a"}), ErrDuplicate)
				require.NoError(t, c.rollback())
				c = begin()
				require.ErrorIs(t, s.SealTx(ctx, c.tx, "nobody's"), ErrNotFound)
				require.ErrorIs(t, s.InsertTx(ctx, c.tx, "first"+kind, Item{ID: " "}), ErrInvalid)
				require.NoError(t, c.rollback())
			})
		}
	})
}

// TestNoTransaction: what is no transaction is named.
func TestNoTransaction(t *testing.T) {
	s := openStore(t, backends[0].fresh(t))
	create(t, s, Partition{ID: "p"})
	pool, err := s.sql.DB.DB()
	require.NoError(t, err)
	require.ErrorIs(t, s.InsertTx(t.Context(), s.sql.DB.WithContext(canceled(t)).Begin(), "p", Item{}), context.Canceled)
	for want, tx := range map[string]any{
		"<nil>": nil, "string": "tx", "nil *sql.Tx": (*sql.Tx)(nil), "*gorm.DB": s.sql.DB, "*sql.DB": pool, "nil *pgxpool.Tx": (*pgxpool.Tx)(nil),
		"nil *gorm.DB": (*gorm.DB)(nil),
	} {
		err := s.InsertTx(t.Context(), tx, "p", Item{})
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, "a "+want+" is no transaction")
		_, err = s.CreatePartitionTx(t.Context(), tx, Partition{ID: "q"})
		require.ErrorIs(t, err, ErrInvalid)
	}
}

// TestManyInsertsOfATransaction: a watcher is woken for all items of a transaction.
func TestManyInsertsOfATransaction(t *testing.T) {
	dsn := backends[0].fresh(t)
	s := openStore(t, dsn)
	create(t, s, Partition{ID: "p"}, Item{ID: "first"})
	got, w := processed(t, s, rarely)
	awaitItem(t, got, "p/first")
	c := begins(t, s, dsn)["sql"]()
	for i := range 300 {
		require.NoError(t, s.InsertTx(t.Context(), c.tx, "p", Item{ID: fmt.Sprint(i)}))
	}
	require.NoError(t, c.commit())
	for range 300 {
		<-got
	}
	require.NoError(t, w.stop(t))
}

// TestTransactionsUnderKills: orders and their work are stored by one transaction, which commits or not, while one of two
// watchers is killed again and again. Each order that is there was worked on, and no other.
func TestTransactionsUnderKills(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, dsn string) {
		ctx := t.Context()
		require.NoError(t, s.sql.DB.Exec("CREATE TABLE orders (id varchar(20) PRIMARY KEY)").Error)
		h := newHistory(t, s, crashConcurrency)
		steady := h.spawn(t, dsn, "")
		kinds := begins(t, s, dsn)
		names := sortedKeys(kinds)
		n := 0
		order := func() {
			n++
			id := fmt.Sprint("o", n)
			c := kinds[names[n%len(names)]]()
			require.NoError(t, c.exec("INSERT INTO orders VALUES ('"+id+"')"))
			_, err := s.CreatePartitionTx(ctx, c.tx, Partition{ID: id}, Item{ID: "charge"})
			require.NoError(t, err)
			require.NoError(t, s.InsertTx(ctx, c.tx, id, Item{ID: "ship", Gate: 1}))
			require.NoError(t, s.SealTx(ctx, c.tx, id))
			if rand.N(3) == 0 {
				require.NoError(t, c.rollback())
			} else {
				require.NoError(t, c.commit())
			}
		}
		for range faultRounds() {
			victim := h.spawn(t, dsn, "")
			at := 1 + rand.N(10)
			eventually(t, "the process is at work", func() bool {
				order()
				return h.of(t, victim, "begin") >= at
			})
			require.NoError(t, victim.Process.Kill())
			_ = victim.Wait()
		}
		eventually(t, "all is complete", func() bool { return allComplete(t, s) })
		require.NoError(t, steady.Process.Kill())
		_ = steady.Wait()
		h.check(t)
		var orders, worked []string
		require.NoError(t, s.sql.DB.Table("orders").Order("id").Pluck("id", &orders).Error)
		require.NoError(t, s.sql.DB.Table("partitions").Where("status = 'Complete'").Order("id").Pluck("id", &worked).Error)
		require.NotEmpty(t, orders)
		require.ElementsMatch(t, orders, worked)
		var items int64
		require.NoError(t, s.sql.DB.Table("items").Where("status = 'Complete'").Count(&items).Error)
		require.EqualValues(t, 2*len(orders), items)
	})
}
