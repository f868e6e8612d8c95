package sqlstore

import (
	"database/sql/driver"
	"fmt"
	"time"
)

// dbTime reads a time that SQLite gives as text where it is the result of an expression.
type dbTime struct{ time.Time }

// RowTime is a time in a row. What another program wrote there and is no time, such as PostgreSQL's infinity, reads as the
// zero time: nobody could list the items beside it, or fetch them.
type RowTime struct{ time.Time }

// Scan implements sql.Scanner.
func (t *RowTime) Scan(v any) error {
	var read dbTime
	if read.Scan(v) != nil {
		read.Time = time.Time{}
	}
	t.Time = read.Time
	return nil
}

// Value implements driver.Valuer.
func (t RowTime) Value() (driver.Value, error) { return t.Time, nil }

var timeForms = []string{"2006-01-02 15:04:05.999999999-07:00", "2006-01-02 15:04:05.999999999", time.RFC3339Nano}

// Scan implements sql.Scanner.
func (t *dbTime) Scan(v any) error {
	switch v := v.(type) {
	case nil:
		t.Time = time.Time{}
		return nil
	case time.Time:
		t.Time = v.UTC()
		return nil
	case []byte:
		return t.parse(string(v))
	case string:
		return t.parse(v)
	}
	return fmt.Errorf("a time is a %T", v)
}

func (t *dbTime) parse(text string) error {
	for _, form := range timeForms {
		if at, err := time.Parse(form, text); err == nil {
			t.Time = at.UTC()
			return nil
		}
	}
	t.Time = time.Time{} // of another program; nothing that is only a hint may fail for it
	return nil
}
