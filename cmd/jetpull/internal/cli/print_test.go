package cli

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

type printed struct {
	ID     string         `json:"id"`
	Made   time.Time      `json:"madeAt"`
	Count  int            `json:"item_count"`
	Empty  *string        `json:"empty"`
	State  map[string]any `json:"state"`
	Tags   []string       `json:"tags"`
	Parts  []part         `json:"parts"`
	Nobody []part         `json:"nobody"`
}

type part struct {
	Name string `json:"name"`
	Size int    `json:"size,omitempty"`
}

func newCommand() (cmd *cobra.Command, out, errOut *strings.Builder) {
	cmd, out, errOut = &cobra.Command{}, &strings.Builder{}, &strings.Builder{}
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	cmd.Flags().Bool("json", false, "")
	return cmd, out, errOut
}

func TestList(t *testing.T) {
	values := []printed{
		{ID: "a\x1b[m", Count: 7, State: map[string]any{"open": true}, Tags: []string{"<x>"}},
		{ID: "long", Made: time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local), State: map[string]any{"note": strings.Repeat("ü", 100)}},
	}
	cmd, out, _ := newCommand()
	columns := []string{"id", "madeAt", ">item_count", "state.open", "state.note:5", "tags", "none"}
	require.NoError(t, List(cmd, columns, All(values)))
	require.Equal(t, `id         made                 item count  open  note   tags     none
─────────  ───────────────────  ──────────  ────  ─────  ───────  ────
"a\x1b[m"                                7  true         ["<x>"]
long       2026-01-02 03:04:05           0        üüüü…
`, out.String())
	out.Reset()
	require.NoError(t, cmd.Flags().Set("json", "true"))
	require.NoError(t, List(cmd, columns, All(values)))
	require.Equal(t, 2, strings.Count(out.String(), "\n"))
	require.Contains(t, out.String(), `"tags":["<x>"]`)
}

func TestListOfNothingAndOfMuch(t *testing.T) {
	cmd, out, errOut := newCommand()
	require.NoError(t, cmd.Flags().Set("json", "true"))
	require.NoError(t, List(cmd, []string{"id"}, All([]part{})))
	require.Empty(t, errOut.String(), "no line is what JSON has")
	require.NoError(t, cmd.Flags().Set("json", "false"))
	require.NoError(t, List(cmd, []string{"id"}, All([]part{})))
	require.Equal(t, "nothing found\n", errOut.String())
	require.Empty(t, out.String())

	many := make([]part, 2*partOfList+1)
	for i := range many {
		many[i].Name = strconv.Itoa(i)
	}
	require.NoError(t, List(cmd, []string{"name"}, All(many)))
	require.Equal(t, len(many)+3*2, strings.Count(out.String(), "\n"), "three tables with a header each")

	broken := func(yield func(part, error) bool) { yield(part{}, errors.New("broken")) }
	require.EqualError(t, List(cmd, []string{"name"}, broken), "broken")
}

func TestShow(t *testing.T) {
	cmd, out, _ := newCommand()
	require.NoError(t, Show(cmd, printed{
		ID: "a", Count: 7, State: map[string]any{"deep": map[string]any{"X-Key": 1.5}}, Tags: []string{"b", "c"}, Parts: []part{{"d", 0}, {"e", 2}},
	}))
	require.Equal(t, `{
  "id": "a",
  "madeAt": "0001-01-01T00:00:00Z",
  "item_count": 7,
  "empty": null,
  "state": {
    "deep": {
      "X-Key": 1.5
    }
  },
  "tags": [
    "b",
    "c"
  ],
  "parts": [
    {
      "name": "d"
    },
    {
      "name": "e",
      "size": 2
    }
  ],
  "nobody": null
}
`, out.String())
}
