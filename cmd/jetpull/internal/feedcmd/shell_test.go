package feedcmd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckProgram(t *testing.T) {
	for _, command := range []string{
		"true", "cd /; ls", "\n\tif true\nthen ls; fi", "A=1 ./none", "$HOME/none", `"./no ne"`, "(ls)", "! ls",
		"ls;./none", "/bin/sh", "",
	} {
		require.NoError(t, checkProgram(t.Context(), command), command)
	}
	for _, command := range []string{"./none", " no-such-program x", "/etc/passwd", "/none/ls\n"} {
		require.Error(t, checkProgram(t.Context(), command), command)
	}
}
