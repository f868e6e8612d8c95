package work

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Sources come and go: what is remembered of one is what its last acknowledgement, which is on its way, leaves open.
func TestTurnsForgetSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, seconds = 1000, 100
		turns := turns{}
		turns.started()
		for second := range seconds {
			for i := range perSecond {
				turns.settle(fmt.Sprint(second, "-", i), uint64(second*perSecond+i))
			}
			require.Equal(t, uint64(second*perSecond), turns.settled[fmt.Sprint(second, "-0")].seq)
			time.Sleep(time.Second)
		}
		require.Less(t, len(turns.settled), 3*perSecond*int(bridged/time.Second))
	})
}
