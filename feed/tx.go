package feed

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// own stands for a transaction of the Store, in calls that take none from the caller.
type own struct{}

// changePartition locks a partition and changes it, in a transaction. The error names the operation.
func changePartition(ctx context.Context, s *Store, tx any, what, partition string, f func(tx *gorm.DB, p *sqlstore.Partition) error) error {
	err := inTx(ctx, s.sql, tx, partition, func(tx *gorm.DB) error { return s.sql.Change(tx, partition, f) })
	return wrapped(err, "%s partition %q", what, partition)
}

// inTx calls f in a transaction, and wakes watchers after the commit.
func inTx(ctx context.Context, s *sqlstore.Store, tx any, partition string, f func(tx *gorm.DB) error) error {
	if pointer := reflect.ValueOf(tx); pointer.Kind() == reflect.Pointer && pointer.IsNil() {
		return invalid("tx", "a nil %T is no transaction", tx)
	}
	switch tx := tx.(type) {
	case own:
		return s.Write(ctx, partition, f)
	case *sql.Tx:
		return s.In(ctx, tx, partition, f)
	case *gorm.DB:
		if tx.Error != nil { // of Begin
			return tx.Error
		}
		if _, begun := tx.Statement.ConnPool.(gorm.TxCommitter); begun {
			return s.In(ctx, tx.Statement.ConnPool, partition, f)
		}
	case pgx.Tx:
		db := sql.OpenDB(pgxTx{tx})
		defer func() { _ = db.Close() }() // closes nothing but itself
		return s.In(ctx, db, partition, f)
	}
	return invalid("tx", "a %T is no transaction; give a *sql.Tx, a pgx.Tx, or a *gorm.DB after Begin", tx)
}

// pgxTx is a transaction of pgx as the one connection of a database/sql pool: the connection of a transaction begun with
// pgx cannot be handed to the driver that pgx has for that package.
type pgxTx struct{ pgx.Tx }

func (t pgxTx) Connect(context.Context) (driver.Conn, error) { return t, nil }
func (t pgxTx) Driver() driver.Driver                        { return nil }
func (t pgxTx) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (t pgxTx) CheckNamedValue(*driver.NamedValue) error     { return nil } // pgx also takes arrays
func (t pgxTx) Close() error                                 { return nil }
func (t pgxTx) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }

// ExecContext implements [driver.ExecerContext].
func (t pgxTx) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	tag, err := t.Exec(ctx, query, values(args)...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

// QueryContext implements [driver.QueryerContext].
func (t pgxTx) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := t.Query(ctx, query, values(args)...)
	return pgxRows{rows}, err
}

func values(args []driver.NamedValue) []any {
	return sqlstore.Map(args, func(arg *driver.NamedValue) any { return arg.Value })
}

// pgxRows implements [driver.Rows] with rows of pgx.
type pgxRows struct{ pgx.Rows }

// Columns implements [driver.Rows].
func (r pgxRows) Columns() []string {
	return sqlstore.Map(r.FieldDescriptions(), func(f *pgconn.FieldDescription) string { return f.Name })
}

// Close implements [driver.Rows].
func (r pgxRows) Close() error {
	r.Rows.Close()
	return r.Err()
}

// Next implements [driver.Rows].
func (r pgxRows) Next(dest []driver.Value) error {
	if !r.Rows.Next() {
		return cmp.Or(r.Err(), io.EOF)
	}
	row, err := r.Values()
	for i, value := range row {
		dest[i] = value
	}
	return err
}
