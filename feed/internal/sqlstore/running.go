package sqlstore

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Report is a watcher's report at a renewal: the column state of feed_watchers.
type Report struct {
	Host    string          `json:"host"`
	PID     int             `json:"pid"`
	Every   time.Duration   `json:"every"` // between two reports
	Running []RunningReport `json:"running"`
}

// RunningReport is an item whose handler runs. The version names the attempt.
type RunningReport struct {
	Partition string        `json:"partition"`
	Item      string        `json:"item"`
	Version   int64         `json:"version"`
	Gate      int           `json:"gate"`
	Attempt   int           `json:"attempt"`
	For       time.Duration `json:"for"` // how long it had run
}

// Watching is a row of feed_watchers: a report with its watcher, and the time of the database at which it was made.
type Watching struct {
	Owner string `gorm:"primaryKey"`
	Seen  RowTime
	State Report `gorm:"serializer:json"`
}

// TableName is GORM's hook.
func (Watching) TableName() string { return "feed_watchers" }

// Cancel asks a watcher to cancel an attempt. It is a row of feed_cancels.
type Cancel struct {
	PartitionID string `gorm:"primaryKey"`
	ItemID      string `gorm:"primaryKey"`
	Owner       string
	Version     int64
}

// TableName is GORM's hook.
func (Cancel) TableName() string { return "feed_cancels" }

// Report stores a watcher's report, and returns and deletes the requests to cancel its attempts. A watcher's first report deletes the rows of
// watchers that are gone.
func (s *Store) Report(ctx context.Context, t Terms, r Report) (cancels []Cancel, err error) {
	state, _ := json.Marshal(r) // JSON can encode every value
	err = s.Transact(ctx, func(tx *gorm.DB) error {
		cancels = nil
		set := map[string]any{"seen": s.Dialect.later(0), "until": s.Dialect.later(2 * (t.Length + s.Dialect.Slack)), "state": string(state)}
		done := tx.Table("feed_watchers").Where("owner = ?", t.Owner).Updates(set)
		if done.Error == nil && done.RowsAffected == 0 {
			set["owner"] = t.Owner
			done = tx.Exec("DELETE FROM feed_watchers WHERE " + s.Dialect.Past("until"))
			if done.Error == nil {
				done = tx.Exec("DELETE FROM feed_cancels WHERE owner NOT IN (SELECT owner FROM feed_watchers)")
			}
			if done.Error == nil {
				done = tx.Table("feed_watchers").Create(set)
			}
		}
		if done.Error != nil {
			return done.Error
		}
		if err := tx.Where("owner = ?", t.Owner).Find(&cancels).Error; err != nil || len(cancels) == 0 {
			return err
		}
		for _, c := range cancels { // another one may have been added since
			if err := tx.Where("version = ?", c.Version).Delete(&c).Error; err != nil {
				return err
			}
		}
		return nil
	})
	return cancels, err
}

// Watching returns the reports of running watchers, with the items whose attempts have not ended since. If owner is not empty, it returns only that
// watcher's.
func (d *dialect) Watching(db *gorm.DB, owner string) (all []Watching, err error) {
	if err := db.Where(&Watching{Owner: owner}).Where("NOT " + d.Past("until")).Order("owner").Find(&all).Error; err != nil {
		return nil, err
	}
	for i := range all {
		w, r := &all[i], &all[i].State
		var now []Item
		err := db.Table("items i").Select("i.partition_id, i.id, i.version").Joins("JOIN partitions p ON p.id = i.partition_id").
			Where("p.owner = ? AND NOT "+d.Past("p.until")+" AND i.status = 'Available'", w.Owner).
			Where("i.partition_id IN ? AND i.id IN ?", Map(r.Running, func(r *RunningReport) string { return r.Partition }),
				Map(r.Running, func(r *RunningReport) string { return r.Item })).Find(&now).Error
		if err != nil {
			return nil, err
		}
		r.Running = slices.DeleteFunc(r.Running, func(r RunningReport) bool {
			return !slices.ContainsFunc(now, func(it Item) bool { return it.PartitionID == r.Partition && it.ID == r.Item && it.Version == r.Version })
		})
	}
	return all, nil
}

// AskToCancel stores a request to a watcher to cancel an attempt.
func AskToCancel(tx *gorm.DB, c Cancel) error {
	return tx.Clauses(clause.OnConflict{
		Columns: []clause.Column{{Name: "partition_id"}, {Name: "item_id"}}, DoUpdates: clause.AssignmentColumns([]string{"owner", "version"}),
	}).Create(&c).Error
}

// Leased reports whether a watcher has the lease of a partition now.
func (d *dialect) Leased(tx *gorm.DB, partition string) (bool, error) {
	var n int64
	err := tx.Model(&Partition{}).Where("id = ? AND owner <> '' AND NOT "+d.Past("until"), partition).Count(&n).Error
	return n > 0, err
}
