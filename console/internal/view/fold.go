package view

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"
)

const (
	// maxLines and maxDepth bound a document that is folded. A larger one is shown as a text.
	maxLines = 4000
	maxDepth = 50
	// openLines is how many lines a document has at most that is shown with all of its parts open.
	openLines = 60
)

// Folded is a JSON document with parts that can be folded. It works without a script.
type Folded struct {
	// ID changes with the content, so that a document which changes is replaced, and one that does not stays folded as a user left it.
	ID    string
	Lines []FoldLine
}

// FoldLine is a line of a JSON document. One that begins an object or an array has the number of its values as Size, and Open if it is shown open.
type FoldLine struct {
	Text, Size         string
	Begins, Ends, Open bool
}

// Fold is a JSON document with a line for each value; nil: it is too large, or a single value.
func Fold(data []byte) *Folded {
	var b bytes.Buffer
	if json.Indent(&b, bytes.TrimSpace(data), "", "") != nil {
		return nil
	}
	texts := strings.Split(b.String(), "\n")
	if len(texts) == 1 || len(texts) > maxLines {
		return nil
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b.Bytes()) // a hash takes all that is written
	f := &Folded{ID: "json-" + strconv.FormatUint(sum.Sum64(), 36), Lines: make([]FoldLine, len(texts))}
	var above, values []int // the lines that have begun and not ended, and how many values each has
	for i, text := range texts {
		line := FoldLine{Text: text, Begins: strings.HasSuffix(text, "{") || strings.HasSuffix(text, "["), Ends: text[0] == '}' || text[0] == ']'}
		depth := len(above) - 1
		switch {
		case line.Ends:
			f.Lines[above[depth]].Size = Count(uint64(values[depth]), "value")
			above, values = above[:depth], values[:depth]
		case depth >= 0:
			values[depth]++
		}
		if line.Begins {
			line.Open = i == 0 || len(texts) <= openLines
			above, values = append(above, i), append(values, 0)
		}
		if len(above) > maxDepth {
			return nil
		}
		f.Lines[i] = line
	}
	return f
}
