package feed

import "github.com/jetpull/jetpull/feed/internal/sqlstore"

func partitionOf(r *sqlstore.Partition) Partition {
	p := Partition{ID: r.ID, Gate: r.Gate, Status: Status(r.Status), Epoch: r.Epoch, Version: r.Version, Sealed: r.Sealed}
	if r.Owner != nil && *r.Owner != "" {
		p.Owner = *r.Owner
		if r.Until != nil {
			p.Until = r.Until.UTC()
		}
	}
	return p
}

func itemOf(r *sqlstore.Item) Item {
	it := Item{
		ID: r.ID, Partition: r.PartitionID, Gate: r.Gate, Status: Status(r.Status), Attempt: r.Attempt, Data: r.Data,
		Version: r.Version, step: r.Step, seq: r.Seq,
	}
	if r.Errors != nil {
		it.Errors = sqlstore.DecodeErrors(*r.Errors)
	}
	if r.NotBefore != nil {
		it.NotBefore = r.NotBefore.UTC()
	}
	return it
}

func itemsOf(rows []sqlstore.Item) []Item {
	items := make([]Item, len(rows))
	for i := range rows {
		items[i] = itemOf(&rows[i])
	}
	return items
}

// itemRows are items as they are inserted.
func itemRows(items []Item) []sqlstore.Item {
	rows := make([]sqlstore.Item, len(items))
	for i := range items {
		it := &items[i]
		rows[i] = sqlstore.Item{ID: it.ID, Gate: it.Gate, Data: it.Data}
		if !it.NotBefore.IsZero() {
			rows[i].NotBefore = &sqlstore.RowTime{Time: it.NotBefore}
		}
	}
	return rows
}
