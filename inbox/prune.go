package inbox

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

const (
	// pruneEvery is the number of a consumer's deliveries between two steps of deletion.
	pruneEvery = 1000
	// pruneRows is the maximum number of rows of a step. It exceeds the rows inserted meanwhile, so that a backlog shrinks.
	pruneRows = 2000
	// pruneTimeout bounds a step, which delays one message.
	pruneTimeout = 5 * time.Second
)

// floor is the row of a consumer in jetpull_inbox_floors. Rows up to the sequence pruned may be deleted. pruned is raised before they are.
type floor struct {
	created int64 // of the consumer
	acked   int64 // an acknowledgement floor
	since   int64 // since when the consumer's floor is acked or higher, by the server's clock
	pruned  int64
}

// next returns the row after the consumer's info was read. The consumer's floor falls on a reset, and when a server forgets acknowledgements.
func (f floor) next(info *jetstream.ConsumerInfo, keep time.Duration) floor {
	now := floor{info.Created.UnixNano(), int64(info.AckFloor.Stream), info.TimeStamp.UnixNano(), f.pruned}
	switch {
	case now.created != f.created || now.acked < f.acked:
		now.pruned = min(f.pruned, now.acked)
		return now
	case now.since-f.since >= int64(keep):
		now.pruned = f.acked
		return now
	}
	return f
}

// prune deletes some of the rows up to the stored floor. Then it raises the floor, if another process has not done so meanwhile.
func (i *inbox) prune(ctx context.Context, d *dialect, m *jetpull.Msg, meta *jetstream.MsgMetadata) error {
	ctx, cancel := context.WithTimeout(ctx, pruneTimeout)
	defer cancel()
	var f floor
	err := i.db.QueryRowContext(ctx, d.bind("SELECT created, acked, since, pruned FROM jetpull_inbox_floors WHERE stream = ? AND consumer = ?"),
		meta.Stream, meta.Consumer).Scan(&f.created, &f.acked, &f.since, &f.pruned)
	none := errors.Is(err, sql.ErrNoRows)
	if err != nil && !none {
		return err
	}
	info, err := m.ConsumerInfo(ctx)
	if err != nil {
		return err
	}
	if none {
		f = floor{}.next(info, i.keep)
		_, err = d.exec(ctx, i.db, d.insert("jetpull_inbox_floors (stream, consumer, created, acked, since, pruned) VALUES (?, ?, ?, ?, ?, ?)"),
			meta.Stream, meta.Consumer, f.created, f.acked, f.since, f.pruned)
		return err
	}
	next := f.next(info, i.keep)
	if err := i.deleteUpTo(ctx, d, meta, min(f.pruned, next.pruned)); err != nil { // up to the stored floor, without rows that a reset needs
		return err
	}
	if next == f {
		return nil
	}
	_, err = d.exec(ctx, i.db, "UPDATE jetpull_inbox_floors SET created = ?, acked = ?, since = ?, pruned = ? "+
		"WHERE stream = ? AND consumer = ? AND since = ?",
		next.created, next.acked, next.since, next.pruned, meta.Stream, meta.Consumer, f.since)
	return err
}

// deleteUpTo deletes a step of the rows up to a sequence. Only MySQL has a limit for DELETE.
func (i *inbox) deleteUpTo(ctx context.Context, d *dialect, meta *jetstream.MsgMetadata, sequence int64) error {
	const last = "SELECT sequence FROM jetpull_inbox WHERE stream = ? AND consumer = ? AND sequence <= ? ORDER BY sequence LIMIT 1 OFFSET ?"
	err := i.db.QueryRowContext(ctx, d.bind(last), meta.Stream, meta.Consumer, sequence, pruneRows-1).Scan(&sequence)
	if err != nil && !errors.Is(err, sql.ErrNoRows) { // without such a row, fewer are left, and all are deleted
		return err
	}
	_, err = d.exec(ctx, i.db, "DELETE FROM jetpull_inbox WHERE stream = ? AND consumer = ? AND sequence <= ?", meta.Stream, meta.Consumer, sequence)
	return err
}
