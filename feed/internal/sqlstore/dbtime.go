package sqlstore

import (
	"database/sql/driver"
	"strings"
	"time"

	"gorm.io/gorm"
)

// RowTime is a time in a row or of an expression, which SQLite gives as text. A value of another program that is no time, such
// as PostgreSQL's infinity, reads as the zero time: an error would keep the items beside it from being listed or fetched.
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

// Clock is the database's clock.
func (d *dialect) Clock(tx *gorm.DB) (time.Time, error) {
	var now RowTime
	err := tx.Raw("SELECT " + d.Now).Row().Scan(&now)
	return now.Time, err
}

// later is the database's clock plus a duration, as an expression or a time.
func (d *dialect) later(tx *gorm.DB, after time.Duration) (any, error) {
	switch ms := after.Milliseconds(); strings.Count(d.Later, "?") {
	case 1:
		return gorm.Expr(d.Later, ms), nil
	case 2:
		return gorm.Expr(d.Later, ms%1000, ms/1000), nil
	}
	now, err := d.Clock(tx)
	return now.Add(after), err
}
