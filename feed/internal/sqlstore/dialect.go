package sqlstore

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// dialect has the differences between databases that GORM does not hide: the clock, and how a row is locked.
type dialect struct {
	Name string
	// Now is the database's clock, and Slack is its possible resolution.
	Now   string
	Slack time.Duration
	// Passed is the condition that the time of a column, {}, has passed.
	Passed string
	// byAvailable makes the fetch read items by the index items_available, if statistics may lead the planner to the whole table.
	byAvailable string
	// locking locks rows by an UPDATE that changes nothing; empty: FOR UPDATE does.
	locking string
	// OneWriter: a transaction locks the whole database with its first UPDATE. A transaction that reads first could not write after another one has
	// written.
	OneWriter bool
	// isolation is the level of transactions, if the default may be one at which a statement does not see what was committed while it waited for a lock.
	isolation sql.IsolationLevel
}

var dialects = map[string]*dialect{
	"sqlite": {
		Name: "sqlite", Now: "strftime('%Y-%m-%d %H:%M:%f', 'now')",
		Passed:      "julianday({}) <= julianday('now')", // it parses each form of a time that another program may have written
		byAvailable: " INDEXED BY items_available", OneWriter: true,
		locking: "UPDATE partitions SET gate = gate WHERE id IN ? AND 1 = 0",
	},
	"postgres": {
		// The beginning of the statement, not of the transaction, which may have waited for a lock in between.
		Name: "postgres", Now: "statement_timestamp()", Passed: "{} <= statement_timestamp()",
		isolation: sql.LevelReadCommitted,
	},
	"sqlserver": {
		Name: "sqlserver", Now: "SYSUTCDATETIME()", Passed: "{} <= SYSUTCDATETIME()",
		locking: "UPDATE partitions SET gate = gate WHERE id IN ?",
	},
}

// portable returns the dialect of a database that only GORM knows. Its clock may have whole seconds. It may stand still from the beginning of a
// transaction, which is after a watcher begins to trust the lease that it takes there.
func portable(name string) *dialect {
	return &dialect{Name: name, Now: "CURRENT_TIMESTAMP", Slack: time.Second, Passed: "{} <= CURRENT_TIMESTAMP"}
}

// Past returns the condition that a column's time has passed.
func (d *dialect) Past(column string) string {
	return strings.ReplaceAll(d.Passed, "{}", column)
}

// lock returns the transaction with which to read partitions, whose rows are then locked until it ends. One statement locks all rows, because a save
// may have many. If it fails, the read returns its error.
func (d *dialect) lock(tx *gorm.DB, ids ...string) *gorm.DB {
	if d.locking == "" {
		return tx.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate})
	}
	return tx.Exec(d.locking, ids).Session(&gorm.Session{NewDB: true})
}

// Clock returns the time by the database's clock.
func (d *dialect) Clock(tx *gorm.DB) (time.Time, error) {
	var now RowTime
	err := ScanRow(tx.Raw("SELECT "+d.Now), &now)
	return now.Time, err
}

// later returns the database's time plus a duration, as a value in a statement. Except on PostgreSQL, a separate statement reads the clock first.
func (d *dialect) later(after time.Duration) any { return later{d, after} }

type later struct {
	*dialect
	after time.Duration
}

// GormValue implements gorm.Valuer.
func (l later) GormValue(_ context.Context, tx *gorm.DB) clause.Expr {
	if l.Name == "postgres" {
		return gorm.Expr(l.Now+" + ? * interval '1 microsecond'", l.after.Microseconds())
	}
	now, err := l.Clock(tx.Session(&gorm.Session{NewDB: true}))
	_ = tx.AddError(err) // the statement is then not executed
	return gorm.Expr("?", now.Add(l.after))
}
