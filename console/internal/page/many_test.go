package page

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// With 10,000 consumers a page has as many rows as with few, a filter finds one of them, and an action reaches all.
func TestManyConsumers(t *testing.T) {
	const many = 10_000
	a := newAccount(many, false)
	sitting(t, consumersOf(a), func(d *desk) {
		rows := func(query string) (rows int, last string) {
			q, err := url.ParseQuery(query)
			require.NoError(t, err)
			page, err := d.page(t.Context(), Request{Query: q, Now: time.Now()})
			require.NoError(t, err)
			for _, part := range page.Parts {
				if part.List != nil {
					for _, row := range part.List.Rows {
						rows, last = rows+1, fmt.Sprint(row.Cells)
					}
				}
			}
			return rows, last
		}
		first, _ := rows("")
		require.Positive(t, first)
		require.Less(t, first, 200)
		n, last := rows("from=9950")
		require.Equal(t, 50, n)
		require.Contains(t, last, "c9999")
		n, last = rows("q=c7777")
		require.Equal(t, 1, n)
		require.Contains(t, last, "c7777")

		d.begin(d.action("", "pause-all"), "rate", "")
		op := d.later(time.Minute)
		require.Equal(t, []any{"done", many, many}, []any{op.State, op.Matched, op.Done})
		require.Len(t, a.called(), many)
	})
}
