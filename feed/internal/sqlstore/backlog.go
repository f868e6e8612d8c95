package sqlstore

import (
	"context"
	"time"

	"gorm.io/gorm"
)

// Backlog is what is not Complete.
type Backlog struct {
	Ready, Delayed, Gated, Failed, BlockedPartitions int
	Oldest                                           time.Duration
}

// Backlog counts it.
func (s *Store) Backlog(ctx context.Context) (Backlog, error) {
	const gated = "i.gate > p.gate"
	due := "(i.not_before IS NULL OR " + s.Dialect.Past("i.not_before") + ")"
	count := func(condition string) string { return "COUNT(CASE WHEN " + condition + " THEN 1 END)" }
	ready := "NOT " + gated + " AND " + due
	var b Backlog
	var since, now dbTime
	err := s.read(ctx, func(db *gorm.DB) error {
		err := db.Raw("SELECT "+count(ready)+", "+count("NOT "+gated+" AND NOT "+due)+", "+count(gated)+", MIN(CASE WHEN "+ready+" THEN i.added END), "+
			s.Dialect.Now+" FROM items i JOIN partitions p ON p.id = i.partition_id WHERE i.status = 'Available'").
			Row().Scan(&b.Ready, &b.Delayed, &b.Gated, &since, &now)
		if err != nil {
			return err
		}
		return db.Raw("SELECT COUNT(*), COUNT(DISTINCT partition_id) FROM items WHERE status = 'Failed'").Row().Scan(&b.Failed, &b.BlockedPartitions)
	})
	if err != nil {
		return Backlog{}, err
	}
	if !since.IsZero() {
		b.Oldest = max(0, now.Sub(since.Time))
	}
	return b, nil
}
