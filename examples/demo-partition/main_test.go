package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain is a member where the example started this program as one.
func TestMain(m *testing.M) {
	if os.Getenv("PARTITION_EXAMPLE") == "member" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestDemo(t *testing.T) {
	chart := filepath.Join(t.TempDir(), "out", "chart.svg")
	var out bytes.Buffer
	require.NoError(t, demo(t.Context(), chart, &out))
	require.Contains(t, out.String(), "2400 orders of 40 customers, handled by 3 members, one of them killed: 0 lost, 0 out of order")
	picture, err := os.ReadFile(chart)
	require.NoError(t, err)
	require.Contains(t, string(picture), "ada is killed")
}
