package brokercmd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStrayVariables(t *testing.T) {
	require.Equal(t,
		[]string{"environment variable JETPULL_BROKER_HTTP_LISTEN is not known and has no effect"},
		strayVariables([]string{"HOME=/", "JETPULL_BROKER_HTTP_LISTEN=x", "JETPULL_BROKER_HTTP_LISTENER=y", "JETPULL_BROKER_LOG_MAX_BACKUPS=3"}))
}
