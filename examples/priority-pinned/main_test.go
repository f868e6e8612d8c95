package main

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var want = regexp.MustCompile(`^(Ada|Grace) is pinned and did \[1 2 3 4 5 6 7 8 9 10\]
unpin: (Ada|Grace) has lost the pin
(Ada|Grace) is pinned and did \[1 2 3 4 5 6 7 8 9 10\]
the stand-by took over: true
$`)

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), "", &out))
	found := want.FindStringSubmatch(out.String())
	require.NotNil(t, found, out.String())
	require.Equal(t, found[1], found[2], "who was pinned loses the pin")
	require.NotEqual(t, found[1], found[3])
}
