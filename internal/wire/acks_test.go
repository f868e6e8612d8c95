package wire

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestVerbs(t *testing.T) {
	require.Equal(t, "+ACK", string(VerbAck))
	require.Equal(t, "+WPI", string(VerbProgress))

	require.Equal(t, "-NAK", string(AppendNak(nil, 0)))
	require.Equal(t, "-NAK", string(AppendNak(nil, -time.Second)))
	require.Equal(t, `-NAK {"delay":1}`, string(AppendNak(nil, 1)))
	require.Equal(t, `-NAK {"delay":9223372036854775807}`, string(AppendNak(nil, math.MaxInt64)))

	require.Equal(t, "+TERM", string(AppendTerm(nil, "")))
	require.Equal(t, "+TERM bad order", string(AppendTerm(nil, "bad order")))

	require.Equal(t, `+NXT {"batch":1,"no_wait":true}`, string(AppendNext(nil, &Request{Batch: 1, NoWait: true})))
	require.Equal(t, `+NXT {"batch":1,"expires":7,"group":"g","id":"p"}`,
		string(AppendNext(nil, &Request{Batch: 1, Expires: 7, Group: "g", ID: "p"})))
}

// A payload built into a buffer with room must not write into the verb, which
// every caller shares.
func TestBuildersLeaveTheVerbsAlone(t *testing.T) {
	_ = append(AppendNak(nil, 0), "x"...)
	_ = append(AppendTerm(nil, ""), "x"...)
	_ = AppendNext(nil, &Request{})
	require.Equal(t, "-NAK", string(VerbNak))
	require.Equal(t, "+TERM", string(VerbTerm))
	require.Equal(t, "+NXT", string(VerbNext))
}

func FuzzAppendUnpin(f *testing.F) {
	f.Add("jobs")
	f.Add("a\"\\\x00\xff")
	f.Fuzz(func(t *testing.T, group string) {
		var got struct {
			Group string `json:"group"`
		}
		body := AppendUnpin(nil, group)
		if err := json.Unmarshal(body, &got); err != nil || got.Group != asUTF8(group) {
			t.Fatalf("%q became %q, which reads back as %q (%v)", group, body, got.Group, err)
		}
	})
}
