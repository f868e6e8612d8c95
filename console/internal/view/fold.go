package view

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"
)

const (
	// maxLines and maxDepth limit a folded document. A larger document is shown as text.
	maxLines = 4000
	maxDepth = 50
	// openLines is the maximum number of lines of a document that is shown with all of its parts open.
	openLines = 60
)

// Folded is a JSON document whose parts can be folded. It works without a script.
type Folded struct {
	// ID changes with the content, so that a changed document is replaced, and an unchanged one stays folded as a user left it.
	ID    string
	Lines []FoldLine
}

// FoldLine is a line of a JSON document. If it begins an object or an array, Size is the number of its values, and Open is set if it is shown open.
type FoldLine struct {
	Text, Size         string
	Begins, Ends, Open bool
}

// Fold returns a JSON document with a line per value. It returns nil for a document that is too large, and for a single value.
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
	_, _ = sum.Write(b.Bytes()) // writing to a hash cannot fail
	f := &Folded{ID: "json-" + strconv.FormatUint(sum.Sum64(), 36), Lines: make([]FoldLine, len(texts))}
	var above, values []int // lines that have begun and not ended, and how many values each has
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
