package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain runs the test binary as a member if the demo started it as one.
func TestMain(m *testing.M) {
	if os.Getenv("PARTITION_EXAMPLE") == "member" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestDemo(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, demo(t.Context(), &out))
	require.Contains(t, out.String(), "2400 orders of 40 customers, handled by 3 members, one of them killed: 0 lost, 0 out of order")
	require.Contains(t, out.String(), "ada is killed\n")
	require.Regexp(t, `(?s)ada is killed.*(grace|joan): \+ partition \d: `, out.String())
}
