package sqlstore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
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
