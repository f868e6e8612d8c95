package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// keepDefault is longer than the two minutes after which nats-server syncs its files by default.
const keepDefault = 5 * time.Minute

// Option is an option of [Handler] and [BatchHandler].
type Option func(*inbox)

// Keep sets how long the identity of a message stays after the consumer's acknowledgement floor has reached it. A server that forgets
// the acknowledgements of a shorter time repeats no effect. The default is five minutes. 0 or less means to delete as soon as possible.
func Keep(d time.Duration) Option { return func(i *inbox) { i.keep = max(d, 0) } }

// Logger sets the logger for failures to delete rows, which have level warn. The default, also for nil, is slog.Default().
func Logger(l *slog.Logger) Option { return func(i *inbox) { i.log = l } }

// inbox is the state that the calls of one handler share.
type inbox struct {
	db    *sql.DB
	f     func(ctx context.Context, tx *sql.Tx, ms []*jetpull.Msg) error
	keep  time.Duration
	log   *slog.Logger
	known atomic.Pointer[dialect] // nil until the database has answered
}

// Handler returns a handler that runs f once for each message, in a transaction of db with the default isolation, and commits. If f was
// committed before, the message is acknowledged without f. After an error of f, which is returned as it is, an error of the database, a panic of
// f, or the end of the context before the commit, the transaction is rolled back and the message is retried. Handler returns nil if db or f is nil.
func Handler(db *sql.DB, f func(ctx context.Context, tx *sql.Tx, m *jetpull.Msg) error, opts ...Option) jetpull.Handler {
	if db == nil || f == nil {
		return nil
	}
	i := newInbox(db, func(ctx context.Context, tx *sql.Tx, ms []*jetpull.Msg) error { return f(ctx, tx, ms[0]) }, opts)
	return func(ctx context.Context, m *jetpull.Msg) error { return i.handle(ctx, []*jetpull.Msg{m}) }
}

// BatchHandler is [Handler] for [jetpull.Subscription.ConsumeBatch]: f has the effects of several messages in one transaction. f gets the
// messages that were not committed before, and is not called if there are none. If the transaction does not commit, each message is handled
// again alone, in its own transaction, and only those that fail again have failed. A panic of f, or the end of the context, fails all.
func BatchHandler(db *sql.DB, f func(ctx context.Context, tx *sql.Tx, ms []*jetpull.Msg) error, opts ...Option) jetpull.BatchHandler {
	if db == nil || f == nil {
		return nil
	}
	i := newInbox(db, f, opts)
	return func(ctx context.Context, ms []*jetpull.Msg) error {
		err := i.handle(ctx, ms)
		if err == nil || len(ms) == 1 {
			return err
		}
		failed := jetpull.BatchError{}
		for _, m := range ms {
			if err := i.handle(ctx, []*jetpull.Msg{m}); err != nil {
				failed[m] = err
			}
		}
		if len(failed) == 0 {
			return nil
		}
		return failed
	}
}

func newInbox(db *sql.DB, f func(context.Context, *sql.Tx, []*jetpull.Msg) error, opts []Option) *inbox {
	i := &inbox{db: db, f: f, keep: keepDefault}
	for _, o := range opts {
		if o != nil {
			o(i)
		}
	}
	if i.log == nil {
		i.log = slog.Default()
	}
	return i
}

func (i *inbox) handle(ctx context.Context, ms []*jetpull.Msg) error {
	metas := make([]*jetstream.MsgMetadata, len(ms))
	for n, m := range ms {
		var err error
		if metas[n], err = m.Metadata(); err != nil {
			return err
		}
	}
	d := i.known.Load()
	if d == nil {
		var err error
		if d, err = dialectOf(ctx, i.db); err != nil {
			return err
		}
		i.known.Store(d)
	}
	if err := i.once(ctx, d, ms, metas); err != nil {
		return err
	}
	for n, meta := range metas {
		if meta.Sequence.Consumer%pruneEvery != 0 { // of many processes, the one that gets this delivery prunes
			continue
		}
		if err := i.prune(ctx, d, ms[n], meta); err != nil && ctx.Err() == nil {
			i.log.WarnContext(ctx, "inbox: rows of acknowledged messages stay", "stream", meta.Stream, "consumer", meta.Consumer, "error", err)
		}
	}
	return nil
}

// once runs the function in a transaction, for the messages that were not committed before.
func (i *inbox) once(ctx context.Context, d *dialect, ms []*jetpull.Msg, metas []*jetstream.MsgMetadata) error {
	tx, err := i.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("inbox: begin a transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	var fresh []*jetpull.Msg
	for n, m := range ms {
		ok, err := d.claim(ctx, tx, m, metas[n])
		if err != nil {
			return err
		}
		if ok {
			fresh = append(fresh, m)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if err := i.f(ctx, tx, fresh); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("inbox: commit message %d of stream %s: %w", metas[0].Sequence.Stream, metas[0].Stream, err)
	}
	return nil
}

// claim inserts the identity of a message, and reports false if the message was handled before. Claims are the first statements of a
// transaction, so that SQLite locks before it reads. The insert waits for other transactions that handle the message or delete its row, so
// the sequence up to which rows may be deleted is read after the insert.
func (d *dialect) claim(ctx context.Context, tx *sql.Tx, m *jetpull.Msg, meta *jetstream.MsgMetadata) (fresh bool, err error) {
	fail := func(what string, err error) (bool, error) {
		return false, fmt.Errorf("inbox: %s message %d of stream %s: %w", what, meta.Sequence.Stream, meta.Stream, err)
	}
	sequence := int64(meta.Sequence.Stream) // unique, even beyond the largest int64
	inserted, err := d.exec(ctx, tx, d.insert("jetpull_inbox (stream, consumer, sequence, stored) VALUES (?, ?, ?, ?)"),
		meta.Stream, meta.Consumer, sequence, meta.Timestamp.UnixNano())
	if err != nil {
		return fail("insert the identity of", err)
	}
	if inserted == 0 {
		return false, nil
	}
	var pruned int64
	err = tx.QueryRowContext(ctx, d.bind("SELECT pruned FROM jetpull_inbox_floors WHERE stream = ? AND consumer = ?"), meta.Stream, meta.Consumer).
		Scan(&pruned)
	if errors.Is(err, sql.ErrNoRows) || err == nil && sequence > pruned {
		return true, nil
	} else if err != nil {
		return fail("read the floor for", err)
	}
	info, err := m.ConsumerInfo(ctx) // the row may have been deleted
	if err != nil {
		return fail("ask whether the server waits for", err)
	}
	return meta.Sequence.Stream > info.AckFloor.Stream, nil
}
