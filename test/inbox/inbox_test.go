package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/inbox"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/jetpulltest"
	"github.com/jetpull/jetpull/test/servertest"
)

// A message is another one if its stream, consumer, sequence or time of storage is. The case of a name counts.
func TestIdentity(t *testing.T) {
	onEach(t, func(t *testing.T, b backend, dsn string) {
		db := open(t, b.driver, dsn)
		db.SetMaxOpenConns(1)
		h := inbox.Handler(db, effect)
		stored := time.Unix(1_700_000_000, 5)
		for n, opts := range [][]jetpulltest.Option{
			nil,
			{jetpulltest.Stream("STREAM", "other")},
			{jetpulltest.Stream("STREAM", "Other")},
			{jetpulltest.Stream("Stream", "other")},
			{jetpulltest.Sequence(2)},
			{jetpulltest.Sequence(9_999_999_999_999_999_999)},
			{jetpulltest.Sequence(1000)}, // rows would be deleted here, but its consumer cannot be read
			{jetpulltest.Stored(stored.Add(1))},
			{jetpulltest.Stream(`O'Brien"$1?`, `consumer-ä`)},
		} {
			for delivery := range 2 {
				opts := append([]jetpulltest.Option{jetpulltest.Stored(stored), jetpulltest.Delivered(uint64(delivery + 1))}, opts...)
				got := jetpulltest.Handle(t.Context(), h, jetpulltest.NewMsg("s.a", nil, opts...))
				require.NoError(t, got.Err)
				require.Equal(t, jetpulltest.Ack, got.Verb)
				require.Equal(t, n+1, effects(t, db))
			}
		}
	})
}

// Nothing of a function that fails, panics or outlives its context is in the database, and its error reaches Consume.
func TestFailuresRollBack(t *testing.T) {
	onEach(t, func(t *testing.T, b backend, dsn string) {
		db := open(t, b.driver, dsn)
		db.SetMaxOpenConns(1)
		failed := errors.New("failed")
		for name, tt := range map[string]struct {
			after func(ctx context.Context, tx *sql.Tx) error
			want  error
		}{
			"error": {func(context.Context, *sql.Tx) error { return failed }, failed},
			"retry": {
				func(context.Context, *sql.Tx) error { return jetpull.Retry(time.Minute, failed) },
				&jetpull.RetryError{After: time.Minute, Err: failed},
			},
			"terminate": {
				func(context.Context, *sql.Tx) error { return jetpull.Terminate("no", failed) },
				&jetpull.TerminateError{Reason: "no", Err: failed},
			},
			"panic":         {func(context.Context, *sql.Tx) error { panic("planned") }, nil},
			"it rolls back": {func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }, nil},
		} {
			got := jetpulltest.Handle(t.Context(), inbox.Handler(db, func(ctx context.Context, tx *sql.Tx, m *jetpull.Msg) error {
				require.NoError(t, effect(ctx, tx, m))
				return tt.after(ctx, tx)
			}), redelivered())
			require.Error(t, got.Err, name)
			require.NotEqual(t, jetpulltest.Ack, got.Verb, name)
			if tt.want != nil {
				require.Equal(t, tt.want, got.Err, name)
			}
			require.Zero(t, effects(t, db), name)
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := jetpulltest.Handle(ctx, inbox.Handler(db, func(ctx context.Context, tx *sql.Tx, m *jetpull.Msg) error {
			require.NoError(t, effect(ctx, tx, m))
			cancel()
			return nil
		}), redelivered())
		require.Error(t, got.Err, "context.Canceled, or sql.ErrTxDone if the driver was faster")
		require.Zero(t, effects(t, db))
		require.Zero(t, number(t, db, "SELECT count(*) FROM jetpull_inbox"))

		require.NoError(t, jetpulltest.Handle(t.Context(), inbox.Handler(db, effect), redelivered()).Err, "after all of these")
		require.Equal(t, 1, effects(t, db))
	})
}

// PostgreSQL rolls back at COMMIT if a statement has failed, and the message is not acknowledged.
func TestAFailedStatementThatIsIgnored(t *testing.T) {
	dsn := backends[1].fresh(t)
	db := open(t, "pgx", dsn)
	require.NoError(t, inbox.Migrate(t.Context(), db))
	got := jetpulltest.Handle(t.Context(), inbox.Handler(db, func(ctx context.Context, tx *sql.Tx, _ *jetpull.Msg) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO missing VALUES (1)")
		require.Error(t, err)
		return nil
	}), redelivered())
	require.Error(t, got.Err)
	require.Zero(t, number(t, db, "SELECT count(*) FROM jetpull_inbox"))
}

// The second of two deliveries at the same time has no effect if the first commits, and has one if the first rolls back.
func TestTwoDeliveriesAtTheSameTime(t *testing.T) {
	waits := map[string]string{
		"pgx":   "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
		"mysql": "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'INSERT IGNORE%'",
	}
	onEach(t, func(t *testing.T, b backend, dsn string) {
		db := open(t, b.driver, dsn)
		for before, outcome := range []error{errors.New("rolled back"), nil} {
			begun, end := make(chan struct{}), make(chan struct{})
			var both sync.WaitGroup
			both.Go(func() {
				got := jetpulltest.Handle(t.Context(), inbox.Handler(db, func(ctx context.Context, tx *sql.Tx, m *jetpull.Msg) error {
					close(begun)
					<-end
					return errors.Join(effect(ctx, tx, m), outcome)
				}), jetpulltest.NewMsg("s.a", nil, jetpulltest.Sequence(uint64(before+1)), jetpulltest.Stored(time.Unix(1, 0))))
				require.ErrorIs(t, got.Err, outcome)
			})
			<-begun
			both.Go(func() {
				got := jetpulltest.Handle(t.Context(), inbox.Handler(db, effect),
					jetpulltest.NewMsg("s.a", nil, jetpulltest.Sequence(uint64(before+1)), jetpulltest.Stored(time.Unix(1, 0))))
				require.NoError(t, got.Err)
			})
			if query := waits[b.driver]; query != "" { // a process of SQLite shows nobody that it waits
				eventually(t, "the second waits", func() error {
					if number(t, db, query) == 0 {
						return errors.New("no transaction waits for a lock")
					}
					return nil
				})
			}
			close(end)
			both.Wait()
			require.Equal(t, before+1, effects(t, db), "after an outcome of the first: %v", outcome)
		}
	})
}

// A commit whose result the process does not learn is an error, and the effect is there once after the redelivery.
func TestACommitWithoutAnAnswer(t *testing.T) {
	onEach(t, func(t *testing.T, b backend, dsn string) {
		for n, committed := range []bool{true, false} {
			db := open(t, b.driver, dsn)
			cut := sql.OpenDB(&cutConnector{db.Driver(), dsn, committed})
			t.Cleanup(func() { require.NoError(t, cut.Close()) })
			next := func() *jetpull.Msg {
				return jetpulltest.NewMsg("s.a", nil, jetpulltest.Sequence(uint64(n+1)), jetpulltest.Stored(time.Unix(1, 0)))
			}
			got := jetpulltest.Handle(t.Context(), inbox.Handler(cut, effect), next())
			require.ErrorIs(t, got.Err, errCut)
			require.Equal(t, jetpulltest.Nak, got.Verb)
			require.NoError(t, jetpulltest.Handle(t.Context(), inbox.Handler(db, effect), next()).Err)
			require.Equal(t, n+1, effects(t, db))
		}
	})
}

var errCut = errors.New("the connection was cut")

// cutConnector opens connections that are cut when a transaction commits: before the database gets that, or after.
type cutConnector struct {
	driver    driver.Driver
	dsn       string
	committed bool
}

func (c *cutConnector) Driver() driver.Driver { return c.driver }

func (c *cutConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	return cutConn{conn, c.committed}, err
}

type cutConn struct {
	driver.Conn
	committed bool
}

func (c cutConn) Begin() (driver.Tx, error) {
	tx, err := c.Conn.Begin() //nolint:staticcheck // of the driver, and the tests give no options
	return cutTx{tx, c.committed}, err
}

type cutTx struct {
	driver.Tx
	committed bool
}

func (tx cutTx) Commit() error {
	if tx.committed {
		return errors.Join(tx.Tx.Commit(), errCut)
	}
	return errors.Join(tx.Rollback(), errCut)
}

// rows is a consumer with messages that are handled by hand.
type rows struct {
	t  *testing.T
	js jetstream.JetStream
	db *sql.DB
	h  jetpull.Handler
}

// TestRowsAreDeleted: rows stay while the floor is below them, and then go, but for those of the last thousands of deliveries.
func TestRowsAreDeleted(t *testing.T) {
	onEach(t, func(t *testing.T, b backend, dsn string) {
		r := newRows(t, b, dsn)
		sub := r.subscribe(time.Hour)
		first := r.fetch(sub, 1)[0]
		r.handle(sub, 3100)
		require.Equal(t, 3100, r.kept(), "the first is not acknowledged")
		r.settle(first)
		r.handle(sub, 4000)
		require.Less(t, r.kept(), 4500)
		require.Equal(t, 7101, effects(t, r.db))
		require.Equal(t, 7101-r.kept(), number(t, r.db, "SELECT min(sequence) FROM jetpull_inbox")-1, "from the first on")
	})
}

// A delivery that was held while others handled its message, and until its row was deleted, has no effect. After a reset of the
// consumer, messages whose rows were deleted have one again, and those whose rows are there have none.
func TestDeliveriesOfDeletedRows(t *testing.T) {
	onEach(t, func(t *testing.T, b backend, dsn string) {
		r := newRows(t, b, dsn)
		sub := r.subscribe(time.Minute)
		held := r.fetch(sub, 1)[0]
		r.handle(sub, 100)
		require.NoError(t, r.js.Conn().Publish(held.Reply(), []byte("-NAK"))) // as if AckWait had passed
		for redelivered := held; redelivered.Delivered() == 1; {              // it is now elsewhere too
			redelivered = r.fetch(sub, 1)[0]
			r.settle(redelivered)
		}
		for number(t, r.db, "SELECT count(*) FROM jetpull_inbox WHERE sequence = 1") > 0 {
			r.handle(sub, 100)
		}
		before := effects(t, r.db)
		r.settle(held)
		require.Equal(t, before, effects(t, r.db), "it was held")

		// After a reset to 1, nats-server 2.15 can read its state of before from the disk again, with the acknowledgement floor of before.
		const first = 2
		_, err := r.js.ResetConsumerToSequence(t.Context(), "S", "C", first)
		require.NoError(t, err)
		again, kept := before-first+1, r.kept()
		r.handle(sub, again)
		require.Equal(t, before+again-kept, effects(t, r.db))
	})
}

func newRows(t *testing.T, b backend, dsn string) *rows {
	t.Helper()
	server := servertest.RunServer(t)
	r := &rows{t: t, js: natstest.JetStream(t, server.Connect(t)), db: open(t, b.driver, dsn)}
	natstest.Stream(t, r.js, "S", "s.>")
	natstest.Publish(t, r.js, "s.a", 8000)
	r.h = inbox.Handler(r.db, effect, inbox.Keep(0))
	return r
}

func (r *rows) subscribe(ackWait time.Duration) *jetpull.Subscription {
	r.t.Helper()
	natstest.Consumer(r.t, r.js, "S", jetstream.ConsumerConfig{Durable: "C", AckWait: ackWait})
	sub, err := jetpull.Subscribe(r.t.Context(), r.js, "S", "C")
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, sub.Close(context.WithoutCancel(r.t.Context()))) })
	return sub
}

func (r *rows) fetch(sub *jetpull.Subscription, n int) []*jetpull.Msg {
	r.t.Helper()
	ms, err := sub.Fetch(r.t.Context(), n, jetpull.FillBatch(), jetpull.MaxWait(patience))
	require.NoError(r.t, err)
	require.Len(r.t, ms, n)
	return ms
}

func (r *rows) settle(ms ...*jetpull.Msg) {
	r.t.Helper()
	for _, m := range ms {
		require.NoError(r.t, r.h(r.t.Context(), m), "message %d", m.Sequence())
	}
	require.NoError(r.t, jetpull.ConfirmAcks(r.t.Context(), ms...))
}

// handle handles messages one after the other, so that the floor follows.
func (r *rows) handle(sub *jetpull.Subscription, n int) {
	r.t.Helper()
	for n > 0 {
		some := r.fetch(sub, min(n, 100))
		r.settle(some...)
		n -= len(some)
	}
}

func (r *rows) kept() int { return number(r.t, r.db, "SELECT count(*) FROM jetpull_inbox") }

// Programs that start at the same time migrate, and later ones need no right to.
func TestMigrate(t *testing.T) {
	for _, b := range backends {
		t.Run(b.driver, func(t *testing.T) {
			dsn := b.fresh(t)
			var all sync.WaitGroup
			for range 8 {
				db := open(t, b.driver, dsn)
				all.Go(func() { require.NoError(t, inbox.Migrate(t.Context(), db)) })
			}
			all.Wait()
			if b.driver != "pgx" {
				return
			}
			db := open(t, b.driver, dsn)
			role := fmt.Sprintf("worker_%d", time.Now().UnixNano())
			for _, statement := range []string{"CREATE ROLE " + role, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO " + role} {
				_, err := db.ExecContext(t.Context(), statement)
				require.NoError(t, err)
			}
			db.SetMaxOpenConns(1)
			_, err := db.ExecContext(t.Context(), "SET ROLE "+role)
			require.NoError(t, err)
			require.NoError(t, inbox.Migrate(t.Context(), db))
			h := inbox.Handler(db, func(context.Context, *sql.Tx, *jetpull.Msg) error { return nil })
			require.NoError(t, jetpulltest.Handle(t.Context(), h, redelivered()).Err)
		})
	}
}

// Messages of a batch have their effects in one transaction. If one fails, each is handled alone, and only that one fails. A batch of messages that
// were handled before does nothing.
func TestBatches(t *testing.T) {
	onEach(t, func(t *testing.T, b backend, dsn string) {
		db := open(t, b.driver, dsn)
		db.SetMaxOpenConns(1)
		failed := errors.New("failed")
		var calls []int
		h := inbox.BatchHandler(db, func(ctx context.Context, tx *sql.Tx, ms []*jetpull.Msg) error {
			calls = append(calls, len(ms))
			for _, m := range ms {
				if err := effect(ctx, tx, m); err != nil {
					return err
				}
				if string(m.Data()) == "bad" {
					return failed
				}
			}
			return nil
		})
		batch := func(bad uint64, sequences ...uint64) (ms []*jetpull.Msg) {
			for _, n := range sequences {
				data := ""
				if n == bad {
					data = "bad"
				}
				ms = append(ms, jetpulltest.NewMsg("s.a", []byte(data), jetpulltest.Sequence(n), jetpulltest.Stored(time.Unix(1, 0))))
			}
			return ms
		}
		require.NoError(t, h(t.Context(), batch(0, 1, 2, 3)))
		require.NoError(t, h(t.Context(), batch(0, 1, 2, 3)))
		require.NoError(t, h(t.Context(), batch(0, 3, 4)))
		require.Equal(t, []int{3, 1}, calls, "messages of the calls: none for those that were handled")
		ms := batch(6, 5, 6, 7)
		err := h(t.Context(), ms)
		require.Equal(t, jetpull.BatchError{ms[1]: failed}, err)
		require.Equal(t, []int{3, 1, 3, 1, 1, 1}, calls)
		require.ErrorIs(t, h(t.Context(), ms[1:2]), failed)
		require.Equal(t, 6, effects(t, db))
		require.Equal(t, 6, number(t, db, "SELECT count(*) FROM jetpull_inbox"))
	})
}
