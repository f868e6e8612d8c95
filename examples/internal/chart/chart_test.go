package chart_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/examples/internal/chart"
)

// element is a part of a picture.
type element struct {
	name  string
	attrs map[string]string
	text  string
}

// draw returns the elements of a chart.
func draw(t *testing.T, charts ...chart.Chart) []element {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, chart.Write(&out, charts...))
	return elements(t, &out)
}

// elements parses a picture.
func elements(t *testing.T, picture io.Reader) []element {
	t.Helper()
	var found []element
	for d := xml.NewDecoder(picture); ; {
		switch token, err := d.Token(); token := token.(type) {
		case xml.StartElement:
			e := element{name: token.Name.Local, attrs: map[string]string{}}
			for _, a := range token.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			found = append(found, e)
		case xml.CharData:
			if len(found) > 0 {
				found[len(found)-1].text += string(bytes.TrimSpace(token))
			}
		case nil:
			require.ErrorIs(t, err, io.EOF)
			return found
		}
	}
}

func texts(elements []element) (all []string) {
	for _, e := range elements {
		if e.name == "text" {
			all = append(all, e.text)
		}
	}
	return all
}

func paths(elements []element) (all []map[string]string) {
	for _, e := range elements {
		if e.name == "path" {
			all = append(all, e.attrs)
		}
	}
	return all
}

func TestChart(t *testing.T) {
	elements := draw(t, chart.Chart{
		Title: "Requests <of> ci & cd", XTitle: "seconds", YTitle: "requests a second",
		Series: []chart.Series{
			{Name: "ci", Points: []chart.Point{{0, 0}, {5, 1500}, {10, 750}}, Area: true},
			{Name: "limit", Points: []chart.Point{{0, 2000}, {10, 2000}}, Dashed: true},
			{Name: "open", Points: []chart.Point{{0, 0}, {5, 2000}}},
			{Name: "nothing"},
		},
	})
	require.Equal(t, []string{
		"Requests <of> ci & cd", "seconds", "requests a second",
		"0", "500", "1,000", "1,500", "2,000", "2,500", "0", "2", "4", "6", "8", "10", "ci", "limit", "open", "nothing",
	}, texts(elements))
	// From 64 to 248 there are 184 pixels for 2,500; from 76 to 840 there are 764 for 10.
	all := paths(elements)
	require.Len(t, all, 4)
	require.Equal(t, "M76.0 248.0L458.0 137.6L840.0 192.8L840.0 248.0L76.0 248.0Z", all[0]["d"])
	require.Equal(t, "M76.0 248.0L458.0 137.6L840.0 192.8", all[1]["d"])
	require.Equal(t, "M76.0 100.8L840.0 100.8", all[2]["d"])
	require.Equal(t, "6 4", all[2]["stroke-dasharray"])
	require.Equal(t, "M76.0 248.0L458.0 100.8", all[3]["d"])
	require.NotEqual(t, all[1]["stroke"], all[2]["stroke"])
}

func TestChartsBelowEachOther(t *testing.T) {
	one := chart.Chart{Title: "one", Series: []chart.Series{{Name: "a", Points: []chart.Point{{0, 0.3}}}}}
	none := chart.Chart{Title: "none", Series: []chart.Series{{Name: "b"}}}
	elements := draw(t, one, none)
	require.Equal(t, "600", elements[0].attrs["height"])
	require.Contains(t, texts(elements), "0.05")
	require.Contains(t, texts(elements), "none", "a series without points is no error")
}

func TestChartThatCannotBeDrawn(t *testing.T) {
	var out bytes.Buffer
	require.ErrorContains(t, chart.Write(&out), "no chart")
	require.ErrorContains(t, chart.Write(&out, chart.Chart{Title: "x"}), `chart "x": it has no series`)
	for want, points := range map[string][]chart.Point{
		"(NaN, 1)":            {{math.NaN(), 1}},
		"(1, +Inf)":           {{1, math.Inf(1)}},
		"(-1, 1)":             {{-1, 1}},
		"(1, -1)":             {{1, -1}},
		"not in the order of": {{2, 1}, {1, 1}},
	} {
		err := chart.Write(&out, chart.Chart{Series: []chart.Series{{Name: "s", Points: points}}})
		require.ErrorContains(t, err, want)
	}
	require.Empty(t, out.String(), "nothing of a picture that has no end")
	broken := errors.New("disk full")
	require.ErrorIs(t, chart.Write(failing{broken}, chart.Chart{Series: []chart.Series{{Name: "s"}}}), broken)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
