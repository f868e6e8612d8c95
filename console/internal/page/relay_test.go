package page

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console/internal/state"
)

// A receiver for which messages wait is not idle because the process of the relay that was asked has made no POST to it.
func TestReceiverWithoutAPost(t *testing.T) {
	for body, want := range map[string]state.Level{
		`{"state":{"breaker":"closed","backlog":1}}`: state.Unknown,
		`{"state":{"breaker":"closed"}}`:             state.Idle,
		`{"state":{"breaker":"closed","refused":0}}`: state.Idle,
		`{"state":{"breaker":"closed","refused":5}}`: state.Red,
		`{"state":{"breaker":"open","failed":0}}`:    state.Amber,
	} {
		var r receiver
		require.NoError(t, json.Unmarshal([]byte(body), &r))
		require.Equal(t, want, r.state().Of().Level, body)
	}
}

// A JSON document that is not folded is shown as a text.
func TestPayloadsAreShown(t *testing.T) {
	for _, data := range []string{`"eyJvcmRlciI6MX0="`, "1", strings.Repeat("[", 60) + strings.Repeat("]", 60)} {
		block := payloadBlock([]byte(data), Request{Payloads: true}, "message")
		require.Equal(t, "Payload as json", block.Title)
		require.Equal(t, data, block.Text)
		require.Nil(t, block.Fold)
	}
	for begin := range 4 { // a character is shown whole or not at all
		for _, one := range []string{"é", "漢", "🦊"} {
			text := strings.Repeat("a", begin) + strings.Repeat(one, maxShown/2)
			block := payloadBlock([]byte(text), Request{Payloads: true}, "message")
			require.Equal(t, "Payload as text", block.Title)
			require.True(t, strings.HasPrefix(text, block.Text))
			require.Greater(t, len(block.Text), maxShown-4)
			glimpse := Request{Payloads: true}.glimpse([]byte(text)).Text
			require.True(t, strings.HasPrefix(text, strings.TrimSuffix(glimpse, "…")), glimpse)
		}
	}
}
