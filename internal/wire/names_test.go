package wire

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSubjects(t *testing.T) {
	require.Equal(t, "$JS.hub.API.CONSUMER.MSG.NEXT.S.C", NextSubject("$JS.hub.API.", "S", "C"))
	require.Equal(t, "js.acme.CONSUMER.INFO.S.C", InfoSubject("js.acme.", "S", "C"))
	require.Equal(t, "$JS.API.CONSUMER.UNPIN.S.C", UnpinSubject("$JS.API.", "S", "C"))
}

func TestAPIPrefix(t *testing.T) {
	for _, tt := range []struct{ prefix, domain, want string }{
		{"", "", "$JS.API."},
		{"", "hub", "$JS.hub.API."},
		{"js.acme", "", "js.acme."},
		{"js.acme.", "", "js.acme."},
		{"js.acme", "hub", "js.acme."},
	} {
		require.Equal(t, tt.want, APIPrefix(tt.prefix, tt.domain), "%+v", tt)
	}
}

func TestValidGroup(t *testing.T) {
	for _, name := range []string{"a", "Z9", "a-b_c/d=e", strings.Repeat("x", 16)} {
		require.NoError(t, ValidGroup(name))
	}
	for _, name := range []string{"", "a b", "a.b", "*", ">", "é", "a+b", "a\n", strings.Repeat("x", 17)} {
		require.ErrorContains(t, ValidGroup(name), strconv.Quote(name))
	}
}

func FuzzValidGroup(f *testing.F) {
	server := regexp.MustCompile(`^[a-zA-Z0-9/_=-]{1,16}$`) // the check that nats-server 2.15 makes
	f.Add("jobs")
	f.Add("jobs\n")
	f.Add("\xff")
	f.Fuzz(func(t *testing.T, name string) {
		if got, want := ValidGroup(name) == nil, server.MatchString(name); got != want {
			t.Fatalf("%q: valid %v here, %v on the server", name, got, want)
		}
	})
}
