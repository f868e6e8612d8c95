package engine

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A line of the log has the addresses of the database and the reasons, which pgx writes on lines of their own.
func TestOneLine(t *testing.T) {
	err := errors.New("failed to connect to `user=u database=d`:\n\t127.0.0.1:1 (h): connection refused\n\t[::1]:1 (h): connection refused")
	require.Equal(t, "failed to connect to `user=u database=d`: 127.0.0.1:1 (h): connection refused [::1]:1 (h): connection refused", oneLine(err))
}
