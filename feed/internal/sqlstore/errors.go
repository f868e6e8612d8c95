package sqlstore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/glebarez/go-sqlite"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
)

// The errors that package feed passes on; it says what they mean.
var (
	ErrNotFound   = errors.New("not found")
	ErrClosed     = errors.New("partition is sealed or complete")
	ErrGatePassed = errors.New("gate is passed")
	ErrDuplicate  = errors.New("duplicate ID")
	ErrNotDone    = errors.New("items are not complete")
	ErrConflict   = errors.New("conflict")
	ErrInvalid    = errors.New("invalid")
)

// Invalid is ErrInvalid for a field or an option.
func Invalid(name, format string, args ...any) error {
	return fmt.Errorf("feed: %w %s: %s", ErrInvalid, name, fmt.Sprintf(format, args...))
}

// transient reports whether the same transaction may succeed when it is run again.
func transient(err error) bool { again, _ := classOf(err); return again }

// Refused reports whether the database will never take these rows.
func Refused(err error) bool { _, never := classOf(err); return never }

func classOf(err error) (transient, refused bool) {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		refused = slices.Contains(postgresRefuses, pg.Code[:min(2, len(pg.Code))])
		return pg.Code == "40001" || pg.Code == "40P01", refused // serialization_failure, deadlock_detected
	}
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		code := lite.Code() & 0xff
		return code == 5 || code == 6, code == 18 || code == 19 // SQLITE_BUSY, SQLITE_LOCKED; SQLITE_TOOBIG, SQLITE_CONSTRAINT
	}
	if ms, ok := errors.AsType[sqlserverError](err); ok {
		return ms.SQLErrorNumber() == 1205, slices.Contains(sqlserverRefuses, ms.SQLErrorNumber()) // the victim of a deadlock
	}
	return false, errors.Is(err, ErrInvalid)
}

var (
	// postgresRefuses are PostgreSQL's classes of errors of data, constraints, views and limits, and of RAISE in a trigger.
	postgresRefuses = []string{"22", "23", "44", "54", "P0"}
	// sqlserverRefuses are SQL Server's errors for a row that breaks a rule of the table, or does not fit.
	sqlserverRefuses = []int32{515, 547, 2601, 2627, 2628, 8152}
)

// sqlserverError is the driver's.
type sqlserverError interface {
	error
	SQLErrorNumber() int32
}

// Duplicate reports whether a unique index refused a row.
func Duplicate(db *gorm.DB, err error) bool {
	translator, ok := db.Dialector.(gorm.ErrorTranslator)
	return ok && errors.Is(translator.Translate(err), gorm.ErrDuplicatedKey)
}
