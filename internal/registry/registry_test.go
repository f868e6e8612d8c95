package registry

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/jsstream"
)

func newTable(changed func(was, is *string)) *Table[string] {
	return Add(&Registry{seen: jsstream.NewProgress()}, Kind[string]{
		Prefix: "k.", Key: func(id ID) string { return id.Group + "." + id.Name },
		Decode:  func(e Entry) (ID, string, error) { return ID{"g", string(e.Value)}, string(e.Value), nil },
		Changed: changed,
	})
}

// A change of one record costs the same however many there are: else the start is quadratic. Deleted records leave nothing.
func TestARecordAmongManyCostsWhatOneDoes(t *testing.T) {
	const many = 5000
	calls := 0
	table := newTable(func(_, _ *string) { calls++ })
	revision := uint64(0)
	change := func(i int, gone bool) {
		revision++
		require.NoError(t, table.apply(Entry{Key: fmt.Sprintf("k.g.%d", i), Revision: revision, Value: fmt.Append(nil, i)}, gone))
	}
	change(0, false)
	alone := testing.AllocsPerRun(10, func() { change(0, false) })
	for i := range many {
		change(i, false)
	}
	require.Less(t, testing.AllocsPerRun(10, func() { change(many/2, false) }), alone+10)
	require.Len(t, table.All(), many)
	calls = 0
	for i := range many {
		change(i, true)
	}
	change(0, true) // a second marker is no change
	require.Equal(t, many, calls)
	require.Empty(t, table.ids)
	require.Empty(t, table.records)
}

// A caller that finds a record can rely on what Known did, and Changed finds the new record.
func TestKnownComesBeforeTheRecordIsFound(t *testing.T) {
	var table *Table[string]
	var order []string
	table = newTable(func(was, is *string) {
		if is == nil {
			require.Empty(t, table.All())
			order = append(order, "removed "+*was)
			return
		}
		require.Equal(t, []string{*is}, table.All())
		order = append(order, "changed "+*is)
	})
	table.kind.Known = func(is string) {
		require.NotContains(t, table.All(), is)
		order = append(order, "known "+is)
	}
	require.NoError(t, table.apply(Entry{Key: "k.g.1", Revision: 1, Value: []byte("a")}, false))
	require.NoError(t, table.apply(Entry{Key: "k.g.1", Revision: 2, Value: []byte("b")}, false))
	require.NoError(t, table.apply(Entry{Key: "k.g.1", Revision: 3}, true))
	require.Equal(t, []string{"known a", "changed a", "known b", "changed b", "removed b"}, order)
}

// Forget drops one group and nothing else.
func TestForget(t *testing.T) {
	table := newTable(nil)
	require.NoError(t, table.apply(Entry{Key: "k.g.1", Revision: 1, Value: []byte("1")}, false))
	table.Forget("other")
	require.Equal(t, []string{"1"}, table.In("g"))
	table.Forget("g")
	require.Empty(t, table.ids)
	require.Empty(t, table.records)
}
