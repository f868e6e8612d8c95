package chart_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/examples/internal/chart"
)

// A timeline has a bar for each span, as long as the span, and a line for each mark from the top to the bottom.
func TestTimeline(t *testing.T) {
	line := chart.Timeline{
		Title: "owners", XTitle: "seconds", States: []string{"ada", "grace"},
		Rows:  []chart.Row{{Name: "p0", Spans: []chart.Span{{From: 0, To: 4}, {From: 4, To: 5, State: 1}}}, {Name: "p1"}},
		Marks: []chart.Mark{{X: 2, Name: "ada is <killed>"}},
	}
	found := draw(t, line)
	require.Subset(t, texts(found), []string{"owners", "seconds", "ada", "grace", "p0", "p1", "ada is <killed>"})
	var widths []string
	for _, e := range found {
		if e.name == "rect" && e.attrs["height"] == "16" {
			widths = append(widths, e.attrs["width"])
		}
		if e.name == "line" && e.attrs["stroke-dasharray"] == "3 3" {
			require.NotEqual(t, e.attrs["y1"], e.attrs["y2"])
			require.Equal(t, e.attrs["x1"], e.attrs["x2"])
		}
	}
	require.Equal(t, []string{"611.2", "152.8"}, widths)
}

func TestTimelineRefuses(t *testing.T) {
	for _, bad := range []chart.Span{{From: 2, To: 1}, {From: -1}, {To: math.NaN()}, {State: 1}, {State: -1}} {
		err := chart.Write(&bytes.Buffer{}, chart.Timeline{
			Title: "x", States: []string{"a"},
			Rows: []chart.Row{{Name: "r", Spans: []chart.Span{bad}}},
		})
		require.ErrorContains(t, err, `chart "x": "r" has a span`)
	}
	require.ErrorContains(t, chart.Write(&bytes.Buffer{}, chart.Timeline{Title: "x"}), "it has no rows")
}
