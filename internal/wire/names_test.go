package wire

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSubjects(t *testing.T) {
	require.Equal(t, "$JS.hub.API.CONSUMER.MSG.NEXT.S.C", ConsumerSubject("$JS.hub.API.", "MSG.NEXT", "S", "C"))
	require.Equal(t, "js.acme.CONSUMER.INFO.S.C", ConsumerSubject("js.acme.", "INFO", "S", "C"))
	require.Equal(t, "$JS.API.CONSUMER.UNPIN.S.C", ConsumerSubject("$JS.API.", "UNPIN", "S", "C"))
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

func FuzzValidGroup(f *testing.F) {
	server := regexp.MustCompile(`^[a-zA-Z0-9/_=-]{1,16}$`) // the check that nats-server 2.15 makes
	for _, name := range []string{
		"jobs", "jobs\n", "\xff", "a", "Z9", "a-b_c/d=e", strings.Repeat("x", 16), "", "a b", "a.b", "*", ">", "é", "a+b",
		strings.Repeat("x", 17),
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err, want := ValidGroup(name), server.MatchString(name)
		require.True(t, err == nil && want || err != nil && !want && strings.Contains(err.Error(), strconv.Quote(name)),
			"%q: %v here, valid %v on the server", name, err, want)
	})
}
