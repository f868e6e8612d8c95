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
}
