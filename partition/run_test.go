package partition

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/jetpulltest"
)

// fetches is a consumer with messages that were handed back. Each fetch returns some of them.
type fetches struct {
	consumer

	unsettled int
	next      [][]uint64
	back      []uint64 // sequences that were handed back, in order
}

func (f *fetches) pending(context.Context) (int, error) { return f.unsettled, nil }

func (f *fetches) fetch(context.Context, int) (msgs []*jetpull.Msg, err error) {
	if len(f.next) > 0 {
		for _, seq := range f.next[0] {
			msgs = append(msgs, jetpulltest.NewMsg("orders.1", nil, jetpulltest.Sequence(seq)))
		}
		f.next = f.next[1:]
	}
	return msgs, nil
}

func (f *fetches) handBack(_ context.Context, msgs []*jetpull.Msg) error {
	for _, m := range msgs {
		f.back = append(f.back, m.Sequence())
	}
	return nil
}

func TestGather(t *testing.T) {
	for _, row := range []struct {
		name    string
		fetched [][]uint64
		back    []uint64
		err     error
	}{
		{"in the order of the stream", [][]uint64{{3, 1}, {2}}, []uint64{1, 2, 3}, nil},
		{"a former owner hands a message back meanwhile", [][]uint64{{3, 1}, {3}, {2}}, []uint64{1, 2, 3}, nil},
		{"one does not come", [][]uint64{{3, 1}}, []uint64{1, 3}, errMissed},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := &Set{cfg: Config{AckWait: 30 * time.Second}}
				c := &fetches{unsettled: 3, next: row.fetched}
				err := (&run{member: &member{set: set}, ctx: t.Context()}).gather(t.Context(), c, true)
				require.ErrorIs(t, err, row.err)
				require.Equal(t, row.back, c.back)
			})
		})
	}
}
