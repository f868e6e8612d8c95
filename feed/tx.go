package feed

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"reflect"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// InsertTx is [Store.Insert] in the caller's transaction on the Store's database. tx is a *[sql.Tx], a [pgx.Tx] on PostgreSQL, or a *[gorm.DB]
// that is in a transaction. The items exist once the caller commits. A rollback leaves nothing. On PostgreSQL and SQLite, watchers are woken
// after the commit; on other databases they find the items by polling. After an error, roll back.
//
// The transaction locks the row of the partition until it ends, so keep it short: see [Store].
func (s *Store) InsertTx(ctx context.Context, tx any, partition string, items ...Item) error {
	rows := sqlstore.Map(items, rowOf)
	return s.changeTx(ctx, tx, "insert into", partition, func(tx *gorm.DB, p *sqlstore.Partition) error { return insertInto(tx, p, rows) })
}

// CreatePartitionTx is [Store.CreatePartition] in the caller's transaction: see [Store.InsertTx].
func (s *Store) CreatePartitionTx(ctx context.Context, tx any, p Partition, items ...Item) (Partition, error) {
	return createPartition(p, items, func(id string, f func(tx *gorm.DB) error) error { return inTx(ctx, s.sql, tx, id, f) })
}

// SealTx is [Store.Seal] in the caller's transaction: see [Store.InsertTx].
func (s *Store) SealTx(ctx context.Context, tx any, partition string) error {
	return s.changeTx(ctx, tx, "seal", partition, seal)
}

// changeTx is change in the caller's transaction.
func (s *Store) changeTx(ctx context.Context, tx any, what, partition string, f func(tx *gorm.DB, p *sqlstore.Partition) error) error {
	err := inTx(ctx, s.sql, tx, partition, func(tx *gorm.DB) error { return s.sql.ChangeIn(tx, partition, f) })
	return wrapped(err, "%s partition %q", what, partition)
}

// inTx runs f in the caller's transaction, and has watchers woken when that has committed.
func inTx(ctx context.Context, s *sqlstore.Store, tx any, partition string, f func(tx *gorm.DB) error) error {
	if pointer := reflect.ValueOf(tx); pointer.Kind() == reflect.Pointer && pointer.IsNil() {
		return invalid("tx", "a nil %T is no transaction", tx)
	}
	switch tx := tx.(type) {
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

// pgxRows are rows of pgx as database/sql reads them.
type pgxRows struct{ pgx.Rows }

// Columns implements [driver.Rows].
func (r pgxRows) Columns() (names []string) {
	for _, field := range r.FieldDescriptions() {
		names = append(names, field.Name)
	}
	return names
}

// Close implements [driver.Rows].
func (r pgxRows) Close() error {
	r.Rows.Close()
	return r.Err()
}

// Next implements [driver.Rows].
func (r pgxRows) Next(dest []driver.Value) error {
	if !r.Rows.Next() {
		if err := r.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	row, err := r.Values()
	for i, value := range row {
		dest[i] = value
	}
	return err
}
