package view

import (
	"bytes"
	"encoding/json"
	"strings"
)

const (
	// maxNodes and maxDepth bound a document that is folded. A larger one is shown as a text.
	maxNodes = 2000
	maxDepth = 50
	// openNodes is how many values a document has at most that is shown with all of its parts open.
	openNodes = 40
)

// Fold is a JSON document as a tree; nil: it is too large, or a single value.
func Fold(data []byte) *Node {
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

func open(n *Node) {
	n.Open = true
	for i := range n.Children {
		open(&n.Children[i])
	}
}

// node reads a value that has a name, or none. It is false for one that is too deep or too large.
func node(d *json.Decoder, name string, depth int, left *int) (n Node, ok bool) {
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
	n.Text, n.Size = name+begin.String(), Count(uint64(len(n.Children)), "value")
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
