package work

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/relay/internal/store"
)

// A lane is restarted for another order between the two steps of its idle check. It begins again at once, and not when its queue is next
// looked at.
func TestARestartIsNotLostInTheIdleCheck(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	one := &lane{laneKey: laneKey{store.ToReceiver, "ci"}, end: end}
	l := &lanes{running: map[laneKey]*lane{one.laneKey: one}}
	l.restart(one)
	l.look(ctx, one)
	require.Error(t, ctx.Err())
	require.True(t, l.goesOn(one))
}
