package signature

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSignatures(t *testing.T) {
	key, at := []byte("key"), time.Unix(1700000000, 5)
	r := Request{"POST", "/channel/ch/broadcast?x=1", []byte("body")}
	for _, scheme := range []string{V1, V2} {
		header := New(scheme, key, at, r).String()
		s, err := Parse(header)
		require.NoError(t, err, header)
		require.Equal(t, at.Unix(), s.At.Unix())
		require.True(t, s.Matches(key, r))
		require.False(t, s.Matches([]byte("other"), r))
		for name, other := range map[string]Request{
			"method": {"PUT", r.Target, r.Body}, "path": {r.Method, "/channel/ci/broadcast?x=1", r.Body},
			"query": {r.Method, "/channel/ch/broadcast?x=2", r.Body}, "no query": {r.Method, "/channel/ch/broadcast", r.Body},
		} {
			require.Equal(t, scheme == V1, s.Matches(key, other), "%s with another %s", scheme, name)
		}
		require.False(t, s.Matches(key, Request{r.Method, r.Target, []byte("bodz")}))
		later := s
		later.At = later.At.Add(time.Second)
		require.False(t, later.Matches(key, r))
	}
	s := New(V2, key, at, r)
	require.NotEqual(t, s.Nonce, New(V2, key, at, r).Nonce)
	s.Nonce = strings.Repeat("n", 16)
	require.False(t, s.Matches(key, r))
	_, err := Parse("v1=00,t=1")
	require.NoError(t, err, "in any order")
	for _, header := range []string{
		"", "t=1", "v1=00", "t=1,v1=0", "t=-1,v1=00", "t=1,v1=00,v1=00", "t=1,v2=00", "t=1,n=short,v2=00", "t=1,n=0123456789abcdef,v1=00",
		"t=1,n=0123456789abcdef,v1=00,v2=00", "t=1,n=0123456789abcde\n,v2=00", "t=1,n=" + strings.Repeat("n", 65) + ",v2=00",
	} {
		_, err := Parse(header)
		require.ErrorIs(t, err, ErrMalformed, header)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("t=1,v1=00")
	f.Add("t=1,n=0123456789abcdef,v2=00")
	f.Fuzz(func(t *testing.T, header string) {
		s, err := Parse(header)
		if err != nil {
			return
		}
		again, err := Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%q is %q, and that is %q: %v", header, s, again, err)
		}
	})
}

// A nonce is remembered for at least the window, whenever the memory's own window begins.
func TestNonces(t *testing.T) {
	n := NewNonces(10*time.Minute, 3)
	begin := time.Unix(1700000000, 0)
	use := func(after time.Duration, nonce string, first, fits bool) {
		t.Helper()
		gotFirst, gotFits := n.Use(begin.Add(after), nonce)
		require.Equal(t, []bool{first, fits}, []bool{gotFirst, gotFits})
	}
	use(0, "a", true, true)
	use(0, "a", false, true)
	use(9*time.Minute, "b", true, true)
	use(11*time.Minute, "b", false, true)
	use(18*time.Minute, "b", false, true)
	use(18*time.Minute, "c", true, true)
	use(18*time.Minute, "d", true, false)
	use(22*time.Minute, "c", false, true)
	use(22*time.Minute, "d", true, true)
	use(60*time.Minute, "d", true, true)
}
