package sqlstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm/clause"
)

// mssqlError is one as SQL Server's driver has them.
type mssqlError int32

func (e mssqlError) Error() string         { return "mssql: refused" }
func (e mssqlError) SQLErrorNumber() int32 { return int32(e) }

func TestSQLServerErrors(t *testing.T) {
	require.True(t, transient(fmt.Errorf("save: %w", mssqlError(1205))), "the victim of a deadlock")
	require.False(t, transient(mssqlError(547)))
	require.True(t, Refused(mssqlError(547)), "a CHECK")
	require.False(t, Refused(mssqlError(1205)))
}

// TestSQLServerDelays: DATEADD takes an int, and a year has more milliseconds.
func TestSQLServerDelays(t *testing.T) {
	s := &Store{Dialect: dialects["sqlserver"]}
	at := s.Dialect.later(365*24*time.Hour + 7*time.Millisecond)
	require.Equal(t, []any{int64(7), int64(365 * 24 * 60 * 60)}, at.(clause.Expr).Vars)
}
