package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), "", &out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Equal(t, "100 confirmed; the server has 0 unacknowledged, its ack floor is 100", lines[0])
	require.Equal(t, "a second confirmation of the first two is refused, as it should be, with an error for each:", lines[1])
	require.Len(t, lines, 4, "one error a message:\n%s", out.String())
	for i, line := range lines[2:] {
		require.Regexp(t, fmt.Sprintf(`stream sequence %d: .*already acknowledged`, i+1), line)
	}
}
