package page

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/console/internal/view"
)

// maxShown is how many bytes of a payload a page shows, and maxHex how many of them it shows as hex.
const (
	maxShown = 64 << 10
	maxHex   = 8 << 10
)

// payloadBlock shows a payload as text, JSON or hex: as the query's parameter "as" requires, or as the payload looks. The parameter "download" of its
// page sends the whole payload.
func payloadBlock(data []byte, r Request, page string, pairs ...string) view.Block {
	if !r.Payloads {
		return view.Block{Title: "Payload", Note: inSentence("no payload", nil)}
	}
	block := view.Block{}
	shown := data[:min(len(data), maxShown)]
	isText := utf8.Valid(shown) || len(shown) < len(data) && utf8.Valid(shown[:len(shown)-utf8.UTFMax])
	kinds := []string{"text", "hex"}
	switch {
	case !isText:
		kinds = []string{"hex", "text"}
	case len(data) <= maxShown && json.Valid(data):
		kinds = []string{"json", "text", "hex"}
	}
	kind := r.Query.Get("as")
	if !slices.Contains(kinds, kind) {
		kind = kinds[0]
	}
	for _, as := range kinds {
		block.Links = append(block.Links, view.Link{Text: as, Href: link(page, append([]string{"as", as}, pairs...)...)})
	}
	block.Links = append(block.Links, view.Link{Text: "download", Href: link(page, append([]string{"download", "1"}, pairs...)...)})
	switch kind {
	case "hex":
		shown = shown[:min(len(shown), maxHex)]
		block.Text = hex.Dump(shown)
	case "json":
		block.Fold = view.Fold(data)
		fallthrough // a single value, and a document that is too large, are not folded
	case "text":
		block.Text, _ = printable(shown, len(shown))
	}
	switch {
	case len(data) == 0:
		block.Note = "The payload is empty."
	case len(shown) < len(data):
		block.Note = fmt.Sprintf("These are the first %s of %s. The download has all of them.", view.Count(uint64(len(shown)), "byte"),
			view.Count(uint64(len(data)), "byte"))
	}
	block.Title = "Payload as " + kind
	return block
}

// download returns a payload for download in place of its page.
func download(r Request, name string, data []byte) (*view.Page, error) {
	if !r.Payloads {
		return nil, &Problem{Status: http.StatusForbidden, Text: inSentence("no payload", nil), Fix: "Sign in with the token of an administrator."}
	}
	return &view.Page{Download: &view.Download{Name: name + ".bin", Data: data}}, nil
}

// printable returns the start of data as text. It replaces bytes that are not text, and characters that could change how the rest of the page is
// read.
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

// glimpse returns the start of a payload on one line.
func (r Request) glimpse(data []byte) view.Value {
	if !r.Payloads {
		return view.None(inSentence("no payload", nil))
	}
	text, cut := printable(data, glimpsed)
	text = strings.Join(strings.Fields(text), " ")
	if cut {
		text += "…"
	}
	return view.Code(text)
}

func headersPart(h nats.Header) view.Part {
	part := view.Part{ID: "headers", Title: "Headers", List: &view.List{
		Found: view.Bounded(len(h), false, "header"), Path: "message", Columns: view.Columns("Name", "*Value"),
	}}
	for i, key := range slices.Sorted(maps.Keys(h)) {
		part.List.Add("h-"+strconv.Itoa(i), view.Code(key), view.Code(strings.Join(h[key], "\n")))
	}
	return part
}
