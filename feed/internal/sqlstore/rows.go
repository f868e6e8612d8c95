package sqlstore

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"
)

// The values of the columns status.
const (
	Available = "Available"
	Complete  = "Complete"
	Failed    = "Failed"
	// Pruning is a partition that was exported and whose items are being deleted.
	Pruning = "Pruning"
)

// ScanRow runs a statement, and scans its row. GORM's Row is nil if the statement had an error before it was run.
func ScanRow(statement *gorm.DB, into ...any) error {
	row := statement.Row()
	if row == nil {
		return fmt.Errorf("the statement was not run: %w", statement.Error)
	}
	return row.Scan(into...)
}

// Partition is a row of partitions.
type Partition struct {
	ID       string `gorm:"primaryKey"`
	Gate     int
	Status   string
	Owner    *string
	Until    *RowTime
	Epoch    int64
	Sealed   bool
	Version  int64
	Claimant *string
}

// TableName is GORM's hook.
func (Partition) TableName() string { return "partitions" }

// OwnedBy reports whether this lease is that of the row. The lease may have expired.
func (r *Partition) OwnedBy(owner string, epoch int64) bool {
	return r.Owner != nil && *r.Owner == owner && r.Epoch == epoch
}

// Update writes the row by its version, or returns ErrConflict. If the caller has locked the row, only a program that ignores locks
// and versions can cause that.
func (r *Partition) Update(tx *gorm.DB, set map[string]any) error {
	set["version"] = r.Version + 1
	done := tx.Model(&Partition{}).Where("id = ? AND version = ?", r.ID, r.Version).Updates(set)
	if done.Error == nil && done.RowsAffected == 0 {
		return ErrConflict
	}
	return done.Error
}

// Item is a row of items. The database assigns Seq.
type Item struct {
	PartitionID string `gorm:"primaryKey"`
	ID          string `gorm:"primaryKey"`
	Seq         int64  `gorm:"->"`
	Gate        int
	Status      string
	Attempt     int
	Step        int64
	Errors      *string
	History     *string `gorm:"<-:update"` // null in a new row
	Data        []byte
	NotBefore   *RowTime
	Version     int64
	Timer       *int64 // milliseconds from the first look at the item to its end; nil: it is for the processor
	// Crashes is the number of attempts in a row that began and did not end, of those that a watcher with MaxCrashes stored; nil: none.
	Crashes *int64 `gorm:"<-:update"` // null in a new row
}

// TableName is GORM's hook.
func (Item) TableName() string { return "items" }

// RowTime is a time in a row or of an expression, which SQLite returns as text. Another program's value that is not a time, such as PostgreSQL's
// infinity, is read as the zero time: an error would prevent other items from being listed or fetched.
type RowTime struct{ time.Time }

var timeForms = []string{"2006-01-02 15:04:05.999999999-07:00", "2006-01-02 15:04:05.999999999", time.RFC3339Nano}

// Scan implements sql.Scanner.
func (t *RowTime) Scan(v any) error {
	t.Time = time.Time{}
	var text string
	switch v := v.(type) {
	case time.Time:
		t.Time = v.UTC()
	case []byte:
		text = string(v)
	case string:
		text = v
	}
	for _, form := range timeForms {
		if at, err := time.Parse(form, text); err == nil {
			t.Time = at.UTC()
		}
	}
	return nil
}

// Value implements driver.Valuer.
func (t RowTime) Value() (driver.Value, error) { return t.Time, nil }

// First reads the row that has these IDs, or returns ErrNotFound.
func First[R any](tx *gorm.DB, condition string, ids ...string) (row R, err error) {
	args := make([]any, len(ids))
	for i, id := range ids {
		if args[i] = id; !Possible(id) {
			return row, ErrNotFound
		}
	}
	found := tx.Where(condition, args...).Limit(1).Find(&row)
	if err = found.Error; err == nil && found.RowsAffected == 0 {
		err = ErrNotFound
	}
	return row, err
}

// Possible reports whether a row can have this ID. PostgreSQL refuses other texts even in a query.
func Possible(id string) bool {
	return utf8.ValidString(id) && !strings.Contains(id, "\x00")
}

// Map returns the value of each row.
func Map[R, V any](rows []R, value func(*R) V) []V {
	list := make([]V, len(rows))
	for i := range rows {
		list[i] = value(&rows[i])
	}
	return list
}

// array returns a column as a parameter, by its address: GORM expands a slice.
func array[R, V any](rows []R, value func(*R) V) *[]V {
	return new(Map(rows, value))
}
