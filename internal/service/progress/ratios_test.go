package progress_test

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/progress"
)

// A bar leads from 1 to the median, right for what is better and left for what is worse, and a line from the least to the most.
// Colours are attributes, which every renderer knows.
func TestRatios(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, progress.WriteRatios(&out, "a < b", "c & d", []progress.Ratio{
		{Name: "wins", Median: 2, Least: 1.5, Most: 4, Text: "2.00×"}, {Name: "loses", Median: 0.75, Least: 0.5, Most: 1.04, Worse: true, Text: "0.75×"},
	}))
	var boxes []element
	var texts []string
	for _, e := range elements(t, &out) {
		require.NotContains(t, e.attrs, "class")
		require.NotContains(t, e.attrs, "style")
		switch e.name {
		case "rect":
			require.Regexp(t, "^#[0-9a-f]{6}$", e.attrs["fill"])
			boxes = append(boxes, e)
		case "text":
			require.Regexp(t, "^#[0-9a-f]{6}$", e.attrs["fill"])
			texts = append(texts, e.text)
		}
	}
	require.Subset(t, texts, []string{"a < b", "c & d", "wins", "loses", "2.00×", "0.75×", "0.5×", "1×", "4×"})
	number := func(e element, name string) int {
		n, err := strconv.Atoi(e.attrs[name])
		require.NoError(t, err)
		return n
	}
	require.Len(t, boxes, 1+4+2*2, "the background, the marks 0.5, 1, 2 and 4, and a bar with its spread for each row")
	half, one, four := number(boxes[1], "x"), number(boxes[2], "x"), number(boxes[4], "x")
	win, winSpread, loss, lossSpread := boxes[5], boxes[6], boxes[7], boxes[8]
	require.Equal(t, one, number(win, "x"))
	require.InDelta(t, (four-half)/3, number(win, "width"), 1, "from 1 to 2, of 0.5 to 4")
	require.Equal(t, four, number(winSpread, "x")+number(winSpread, "width"))
	require.Equal(t, one, number(loss, "x")+number(loss, "width"))
	require.Equal(t, half, number(lossSpread, "x"))
	require.NotEqual(t, win.attrs["fill"], loss.attrs["fill"])
}
