package console

import (
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/view"
)

// Each action is kept once, also one that ends while the earlier ones are read. Its ID is that of a process, and is not kept.
func TestEachActionIsKept(t *testing.T) {
	const actions = 200
	a := newActionLog()
	var mu sync.Mutex
	kept := map[string]int{}
	var all sync.WaitGroup
	for i := range actions {
		all.Go(func() { a.add(view.Entry{Action: strconv.Itoa(i)}) })
		if i == actions/2 {
			all.Go(func() {
				a.restore(nil, func(e view.Entry) {
					mu.Lock()
					defer mu.Unlock()
					kept[e.Action] += 1 + e.ID
				})
			})
		}
	}
	all.Wait()
	require.Len(t, kept, actions)
	for name, n := range kept {
		require.Equal(t, 1, n, name)
	}
}
