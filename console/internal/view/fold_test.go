package view

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A document is folded with its members in their order. One that is too large, too deep, or without members is not.
func TestFold(t *testing.T) {
	f := Fold([]byte(` {"b": {"price": 1.50}, "a": [], "c": [1, "x {", {}]}` + "\n"))
	var shown []string
	for _, line := range f.Lines {
		shown = append(shown, line.Text+line.Size)
		require.Equal(t, line.Begins, line.Open)
	}
	require.Equal(t, []string{`{3 values`, `"b": {1 value`, `"price": 1.50`, `},`, `"a": [],`, `"c": [3 values`, `1,`, `"x {",`, `{}`, `]`, `}`}, shown)
	layout := &Layout{Page: &Page{Parts: []Part{{Texts: []Block{{Fold: f}}}}}}
	data, err := Render("live", layout)
	require.NoError(t, err)
	html := string(data)
	require.Equal(t, strings.Count(html, "<li>"), strings.Count(html, "</li>"))
	require.Contains(t, html, `<ul><li><details open><summary><bdi>{</bdi> <span class="muted">3 values</span></summary><ul><li><details open><summary><bdi>&#34;b&#34;: {</bdi>`)
	require.Contains(t, html, `<li><bdi>&#34;price&#34;: 1.50</bdi></li></ul><bdi>},</bdi></details></li>`)
	for _, none := range []string{"", "x", "1", `"x"`, "{}", strings.Repeat("[", 60) + strings.Repeat("]", 60), "[" + strings.Repeat("1,", 5000) + "1]"} {
		require.Nil(t, Fold([]byte(none)), "%.20s", none)
	}
	long := Fold([]byte(`{"a": {"b": 1}, "c": [` + strings.Repeat("1,", 100) + `1]}`))
	require.True(t, long.Lines[0].Open)
	require.False(t, long.Lines[1].Open)
	require.NotEqual(t, f.ID, long.ID)
}
