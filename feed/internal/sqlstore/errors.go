package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/glebarez/go-sqlite"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
)

// The errors that package feed exports and documents.
var (
	ErrNotFound   = errors.New("not found")
	ErrClosed     = errors.New("partition is sealed or complete")
	ErrGatePassed = errors.New("gate is passed")
	ErrDuplicate  = errors.New("duplicate ID")
	ErrNotDone    = errors.New("items are not complete")
	ErrConflict   = errors.New("conflict")
	ErrInvalid    = errors.New("invalid")
)

// Invalid returns ErrInvalid for a field or an option.
func Invalid(name, format string, args ...any) error {
	return fmt.Errorf("feed: %w %s: %s", ErrInvalid, name, fmt.Sprintf(format, args...))
}

// transient reports whether the same transaction may succeed when it is run again.
func transient(err error) bool { again, _ := classOf(err); return again }

// Refused reports whether a statement may have failed because of its rows. If a statement without rows succeeds, it has.
func Refused(err error) bool { _, never := classOf(err); return never }

// Slow reports whether a statement failed because it took too long: a smaller one, or one that waits for no lock, may succeed.
func Slow(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return (ok && (pg.Code == "57014" || pg.Code == lockTimeout)) || // query_canceled, by statement_timeout
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrConflict)
}

// Locked reports whether a statement failed because another transaction has kept a row locked for longer than lockWait.
func Locked(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == lockTimeout
}

// lockTimeout is PostgreSQL's lock_not_available, and readOnly its read_only_sql_transaction: the server was the primary once.
const lockTimeout, readOnly = "55P03", "25006"

func classOf(err error) (transient, refused bool) {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		refused = pg.Code != lockTimeout && !slices.Contains(postgresFails, pg.Code[:min(2, len(pg.Code))])
		return pg.Code == "40001" || pg.Code == "40P01", refused // serialization_failure, deadlock_detected
	}
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		code := lite.Code() & 0xff
		// SQLITE_BUSY, SQLITE_LOCKED; SQLITE_ERROR, SQLITE_TOOBIG, SQLITE_CONSTRAINT, SQLITE_MISMATCH
		return code == 5 || code == 6, code == 1 || (code >= 18 && code <= 20)
	}
	if ms, ok := errors.AsType[sqlserverError](err); ok {
		n := ms.SQLErrorNumber()
		return n == 1205, n >= 50000 || slices.Contains(sqlserverRefuses, n) // the victim of a deadlock; THROW and RAISERROR
	}
	return false, errors.Is(err, ErrInvalid)
}

var (
	// postgresFails are PostgreSQL's classes of errors of the connection, the transaction, resources, the operator and the system. Any other
	// may be that of a rule, a policy or a trigger.
	postgresFails = []string{"08", "25", "40", "53", "57", "58"}
	// sqlserverRefuses are SQL Server's errors for a row that breaks a rule of the table, or does not fit.
	sqlserverRefuses = []int32{515, 547, 2601, 2627, 2628, 8152}
)

type sqlserverError interface {
	error
	SQLErrorNumber() int32
}

// Duplicate reports whether a unique index refused a row.
func Duplicate(db *gorm.DB, err error) bool {
	translator, ok := db.Dialector.(gorm.ErrorTranslator)
	return ok && errors.Is(translator.Translate(err), gorm.ErrDuplicatedKey)
}
