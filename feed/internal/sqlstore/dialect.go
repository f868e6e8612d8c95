package sqlstore

import (
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// dialect is what differs between databases beyond what GORM evens out: the clock, and how a row is locked.
type dialect struct {
	Name string
	// now is the database's clock; later is that plus a parameter, in milliseconds.
	Now, Later string
	// past tells that a column's time has come.
	Past func(column string) string
	// nullsFirst orders rows without a value before the others.
	nullsFirst string
	// lockByUpdate: the row is locked by an UPDATE that changes nothing, not by FOR UPDATE.
	lockByUpdate bool
	// oneWriter: a transaction takes the lock of the whole database with its first statement.
	OneWriter bool
}

var dialects = map[string]*dialect{
	"sqlite": {
		Name: "sqlite", Now: "strftime('%Y-%m-%d %H:%M:%f', 'now')",
		Later: "strftime('%Y-%m-%d %H:%M:%f', 'now', (? / 1000.0) || ' seconds')",
		// julianday reads each form of a time that another program may have written.
		Past:       func(c string) string { return "julianday(" + c + ") <= julianday('now')" },
		nullsFirst: " NULLS FIRST", OneWriter: true,
	},
	"postgres": {
		// The statement's beginning, not the transaction's: a lock may have been waited for in between.
		Name: "postgres", Now: "statement_timestamp()",
		Later:      "statement_timestamp() + CAST(? AS bigint) * interval '1 millisecond'",
		Past:       func(c string) string { return c + " <= statement_timestamp()" },
		nullsFirst: " NULLS FIRST",
	},
	"sqlserver": {
		Name: "sqlserver", Now: "SYSUTCDATETIME()", Later: "DATEADD(millisecond, ?, SYSUTCDATETIME())",
		Past:         func(c string) string { return c + " <= SYSUTCDATETIME()" },
		lockByUpdate: true,
	},
}

// begin is a transaction's first statement where the transaction will write. One that reads first could not write
// once another one has written.
func (d *dialect) begin(tx *gorm.DB) error {
	if !d.OneWriter {
		return nil
	}
	return tx.Exec("UPDATE partitions SET gate = gate WHERE 1 = 0").Error
}

// lock reads a partition and keeps its row until the transaction ends.
func (d *dialect) lock(tx *gorm.DB, id string) (Partition, error) {
	var rows []Partition
	if d.lockByUpdate {
		if err := tx.Exec("UPDATE partitions SET gate = gate WHERE id = ?", id).Error; err != nil {
			return Partition{}, err
		}
	} else {
		tx = tx.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate})
	}
	if err := tx.Where("id = ?", id).Limit(1).Find(&rows).Error; err != nil {
		return Partition{}, err
	}
	if len(rows) == 0 {
		return Partition{}, ErrNotFound
	}
	return rows[0], nil
}
