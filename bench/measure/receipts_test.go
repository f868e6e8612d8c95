package measure

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func indexed(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

func TestReceiptsOfACleanRound(t *testing.T) {
	r := newReceipts(130)
	for i := range 130 {
		r.mark(indexed(i))
	}
	require.NoError(t, r.check(true))
	assert.Equal(t, 130, r.calls())
	_, open := <-r.done
	assert.False(t, open)
}

func TestReceiptsCatchWhatIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		payloads [][]byte
		once     bool
		want     string
	}{
		"lost":          {[][]byte{indexed(0)}, true, "received 1 of 2 messages"},
		"duplicate":     {[][]byte{indexed(0), indexed(1), indexed(1)}, true, "received 1 of 2 messages more than once"},
		"out of range":  {[][]byte{indexed(0), indexed(1), indexed(2)}, true, "1 payloads that are not of this round"},
		"short payload": {[][]byte{indexed(0), indexed(1), []byte("x")}, false, "1 payloads that are not of this round"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceipts(2)
			for _, p := range tt.payloads {
				r.mark(p)
			}
			assert.ErrorContains(t, r.check(tt.once), tt.want)
		})
	}
}

func TestReceiptsCountDuplicatesWhereTheyAreAllowed(t *testing.T) {
	r := newReceipts(1)
	r.mark(indexed(0))
	r.mark(indexed(0))
	require.NoError(t, r.check(false))
	assert.Equal(t, 2, r.calls())
}

func TestMarkDoesNotAllocate(t *testing.T) {
	r, payload := newReceipts(1_000), indexed(7)
	assert.Zero(t, testing.AllocsPerRun(100, func() { r.mark(payload) }))
}
