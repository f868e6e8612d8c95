package page

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jetpull/jetpull/console/internal/view"
)

// maxShown is how many bytes of a payload a page shows.
const maxShown = 64 << 10

// payloadBlock shows a payload as text, JSON or hex, as the parameter "as" of the query says, or as what it looks like.
func payloadBlock(data []byte, q url.Values, page string, pairs ...string) view.Block {
	kind := q.Get("as")
	shown, note := data, ""
	if len(data) > maxShown {
		shown = data[:maxShown]
		note = fmt.Sprintf("These are the first %s of %s. The download has all of them.", view.Count(maxShown, "byte"), view.Count(uint64(len(data)), "byte"))
	}
	block := view.Block{Title: "Payload"}
	for _, as := range []string{"text", "json", "hex"} {
		block.Links = append(block.Links, view.Link{Text: as, Href: link(page, append([]string{"as", as}, pairs...)...)})
	}
	block.Links = append(block.Links, view.Link{Text: "download", Href: link("payload", pairs...)})
	var indented bytes.Buffer
	isJSON := len(data) > 0 && len(data) <= maxShown && json.Indent(&indented, data, "", "  ") == nil
	if kind == "" {
		switch {
		case isJSON:
			kind = "json"
		case utf8.Valid(shown) || len(shown) < len(data) && utf8.Valid(shown[:len(shown)-utf8.UTFMax]):
			kind = "text"
		default:
			kind = "hex"
		}
	}
	switch {
	case len(data) == 0:
		note = "The payload is empty."
	case kind == "hex":
		const hexShown = 8 << 10
		if len(shown) > hexShown {
			shown = shown[:hexShown]
			note = fmt.Sprintf("These are the first %s of %s. The download has all of them.", view.Count(hexShown, "byte"), view.Count(uint64(len(data)), "byte"))
		}
		block.Text = hex.Dump(shown)
	case kind == "json" && isJSON:
		block.Text = indented.String()
	default:
		if kind == "json" {
			note = strings.TrimSpace("It is not JSON, or too large to be indented, so it is shown as text. " + note)
		}
		block.Text, _ = printable(shown, len(shown))
	}
	block.Title += " as " + kind
	block.Note = note
	return block
}

// printable is the begin of data as text. Bytes that are no text, and characters that could change how the rest of the page is read, are
// replaced.
func printable(data []byte, most int) (text string, cut bool) {
	if len(data) > most {
		data, cut = data[:most], true
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r != '\n' && r != '\t' && unicode.IsControl(r) {
			return '\uFFFD'
		}
		return r
	}, string(data)), cut
}
