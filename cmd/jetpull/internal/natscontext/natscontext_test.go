package natscontext

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExpandHome(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	require.Equal(t, "/home/ann/a/b", ExpandHome("~/a/b"))
	require.Equal(t, "/etc/x", ExpandHome("/etc/x"))
	require.Equal(t, "~other/x", ExpandHome("~other/x"))
}
