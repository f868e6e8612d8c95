package view

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The usual names of environments have different colours, and the style sheet has each.
func TestColorsOfEnvironments(t *testing.T) {
	seen := map[int]string{}
	for _, name := range []string{"production", "staging", "development", "test"} {
		color := Place{Environment: name}.Color()
		require.Empty(t, seen[color], name)
		seen[color] = name
	}
	style, err := Static.ReadFile("style.css")
	require.NoError(t, err)
	for color := range colors {
		require.Contains(t, string(style), fmt.Sprintf("\n.env%d {", color))
	}
}

func TestTitleOfAPlace(t *testing.T) {
	for want, place := range map[string]Place{
		`title="server n1, at nats://n1:4222, account SHOP"`: {Server: "n1", URL: "nats://n1:4222", Account: "SHOP"},
		`title="environment production"`:                     {Environment: "production"},
	} {
		page, err := Render("layout", &Layout{Place: place})
		require.NoError(t, err)
		require.Contains(t, string(page), want)
	}
	page, err := Render("layout", &Layout{})
	require.NoError(t, err)
	require.NotContains(t, string(page), `class="where"`, "nothing is known of the place")
}
