package main

import (
	"encoding/xml"
	"testing"

	"github.com/stretchr/testify/require"
)

// A bar leads from 1 to the median, to the right if the result is better and to the left if it is worse. A line leads from the
// least to the most. Colours are attributes, which all renderers support.
func TestRatios(t *testing.T) {
	type box struct {
		X     int    `xml:"x,attr"`
		Width int    `xml:"width,attr"`
		Fill  string `xml:"fill,attr"`
	}
	var picture struct {
		Rects []box `xml:"rect"`
		Texts []struct {
			Text string `xml:",chardata"`
			Fill string `xml:"fill,attr"`
		} `xml:"text"`
	}
	data := writeRatios("a < b", "c & d", []ratio{
		{Name: "wins", Median: 2, Least: 1.5, Most: 4, Text: "2.00×"}, {Name: "loses", Median: 0.75, Least: 0.5, Most: 1.04, Worse: true, Text: "0.75×"},
	})
	require.NoError(t, xml.Unmarshal(data, &picture))
	require.NotRegexp(t, `class=|style=`, string(data))
	boxes, texts := picture.Rects, []string{}
	for _, b := range boxes {
		require.Regexp(t, "^#[0-9a-f]{6}$", b.Fill)
	}
	for _, e := range picture.Texts {
		require.Regexp(t, "^#[0-9a-f]{6}$", e.Fill)
		texts = append(texts, e.Text)
	}
	require.Subset(t, texts, []string{"a < b", "c & d", "wins", "loses", "2.00×", "0.75×", "0.5×", "1×", "4×"})
	require.Len(t, boxes, 1+4+2*2, "the background, the marks 0.5, 1, 2 and 4, and a bar with its spread for each row")
	half, one, four := boxes[1].X, boxes[2].X, boxes[4].X
	win, winSpread, loss, lossSpread := boxes[5], boxes[6], boxes[7], boxes[8]
	require.Equal(t, one, win.X)
	require.InDelta(t, (four-half)/3, win.Width, 1, "from 1 to 2, of 0.5 to 4")
	require.Equal(t, four, winSpread.X+winSpread.Width)
	require.Equal(t, one, loss.X+loss.Width)
	require.Equal(t, half, lossSpread.X)
	require.NotEqual(t, win.Fill, loss.Fill)
}
