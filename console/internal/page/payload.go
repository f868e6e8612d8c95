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
	isJSON := len(data) > 0 && len(data) <= maxShown && json.Valid(data)
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
		if block.Fold = fold(data); block.Fold == nil {
			var indented bytes.Buffer
			_ = json.Indent(&indented, data, "", "  ") // it is valid
			block.Text = indented.String()
		}
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

const (
	// maxNodes and maxDepth bound a document that is folded. A larger one is shown as a text.
	maxNodes = 2000
	maxDepth = 50
	// openNodes is how many values a document has at most that is shown with all of its parts open.
	openNodes = 40
)

// fold is a JSON document as a tree; nil: it is too large, or a single value.
func fold(data []byte) *view.Node {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	left := maxNodes
	tree, ok := node(d, "", maxDepth, &left)
	if !ok || len(tree.Children) == 0 {
		return nil
	}
	tree.Open = true
	if maxNodes-left <= openNodes {
		open(&tree)
	}
	return &tree
}

func open(n *view.Node) {
	n.Open = true
	for i := range n.Children {
		open(&n.Children[i])
	}
}

// node reads a value that has a name, or none. It is false for one that is too deep or too large.
func node(d *json.Decoder, name string, depth int, left *int) (n view.Node, ok bool) {
	token, err := d.Token()
	if *left--; err != nil || *left < 0 || depth == 0 {
		return n, false
	}
	begin, nested := token.(json.Delim)
	if !nested {
		n.Text = name + literal(token)
		return n, true
	}
	n.End = map[json.Delim]string{'{': "}", '[': "]"}[begin]
	for d.More() {
		member := ""
		if begin == '{' {
			key, err := d.Token()
			if err != nil {
				return n, false
			}
			member = literal(key) + ": "
		}
		child, ok := node(d, member, depth-1, left)
		if !ok {
			return n, false
		}
		n.Children = append(n.Children, child)
	}
	_, err = d.Token() // the end
	n.Text, n.Size = name+begin.String(), view.Count(uint64(len(n.Children)), "value")
	if len(n.Children) == 0 {
		n.Text += n.End
	}
	return n, err == nil
}

// literal is a value without children, as it is in JSON.
func literal(token json.Token) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(token) // it was decoded
	return strings.TrimSuffix(b.String(), "\n")
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
