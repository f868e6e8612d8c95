package wire

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVerbs(t *testing.T) {
	require.Equal(t, "+ACK", string(VerbAck))
	require.Equal(t, "+WPI", string(VerbProgress))

	require.Equal(t, `-NAK {"delay":1}`, string(Nak(1)))
	require.Equal(t, `-NAK {"delay":9223372036854775807}`, string(Nak(math.MaxInt64)))

	require.Equal(t, "+TERM bad order", string(Term("bad order")))

	require.Equal(t, `+NXT {"batch":1,"no_wait":true}`, string(Next(&Request{Batch: 1, NoWait: true})))
	require.Equal(t, `+NXT {"batch":1,"expires":7,"group":"g","id":"p"}`,
		string(Next(&Request{Batch: 1, Expires: 7, Group: "g", ID: "p"})))
}
