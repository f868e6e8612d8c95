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
	one := &lane{laneKey: laneKey{store.ToReceiver, "ci"}}
	l := &lanes{running: map[laneKey]*lane{one.laneKey: one}}
	run, restart := context.WithCancel(t.Context())
	restart()
	l.reset(one)
	(&Workers{core: &core{lanes: l, ctx: t.Context()}}).awaitEnd(run, one)
	require.True(t, l.goesOn(one))
}
