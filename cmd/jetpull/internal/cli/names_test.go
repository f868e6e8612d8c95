package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsSubject(t *testing.T) {
	for subject, want := range map[string][2]bool{
		"a": {true, true}, "a.b-c": {true, true}, "a.*.b": {false, true}, "a.>": {false, true}, ">": {false, true},
		"": {}, "a.": {}, ".a": {}, "a b": {}, "a.>.b": {}, "a.b*": {false, true},
	} {
		require.Equal(t, want, [2]bool{IsSubject(subject, false), IsSubject(subject, true)}, subject)
	}
}
