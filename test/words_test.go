package test

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// riddles are words and openings of sentences that make a page hard to read, with a replacement for each.
var riddles = []struct {
	hints   []string // in lower case; text without any of them needs no look at the pattern, which is slow
	pattern *regexp.Regexp
	instead string
}{
	{
		[]string{"what ", "who ", "where "},
		regexp.MustCompile(`(?:^|[.:] )(?:What|Who|Where) [a-z]`),
		"begin with the subject: \"A caller that …\", \"If …\"",
	},
	{[]string{"told", "tells"}, regexp.MustCompile(`\b(?:told|tells)\b`), "a thing is reported, returned or configured"},
	{[]string{"mend"}, regexp.MustCompile(`(?i)\bmend(?:s|ed|ing)?\b`), "repair"},
	{[]string{"made anew"}, regexp.MustCompile(`(?i)\bmade anew\b`), "recreated, generated"},
	{[]string{" room"}, regexp.MustCompile(`(?i)\b(?:no|leaves?|has|made|makes) room\b`), "a limit, space or capacity"},
	{[]string{"held against"}, regexp.MustCompile(`(?i)\bheld against\b`), "compared with"},
	{[]string{"what become", "what became"}, regexp.MustCompile(`(?i)\bwhat becomes? of\b|\bwhat became of\b`), "the outcome, result or state"},
	{[]string{"overheard"}, regexp.MustCompile(`(?i)\boverheard\b`), "captured"},
	{[]string{"bury", "buri"}, regexp.MustCompile(`(?i)\b(?:bury|buried|buries)\b`), "dead letter"},
}

var (
	inlineCode   = regexp.MustCompile("`[^`\n]*`")
	paragraphEnd = regexp.MustCompile(`\n\s*\n|\n\s*(?:[-*#]|\d+\.) |\s*\|\s*`)
)

// hard returns the openings and words of a paragraph that are hard to read, with a replacement for each.
func hard(paragraph string) (found []string) {
	lower := strings.ToLower(paragraph)
	for _, r := range riddles {
		if !slices.ContainsFunc(r.hints, func(hint string) bool { return strings.Contains(lower, hint) }) {
			continue
		}
		for _, m := range r.pattern.FindAllStringIndex(paragraph, -1) {
			rest := paragraph[m[0]:]
			if sentence, _, _ := strings.Cut(rest[1:], ". "); strings.HasSuffix(strings.TrimSpace(sentence), "?") {
				continue
			}
			found = append(found, rest[:min(len(rest), 60)]+": "+r.instead)
		}
	}
	return found
}

// paragraphs splits Markdown, or a comment without its slashes, into paragraphs, list items and cells of tables. Code is left out.
func paragraphs(text string) (all []string) {
	text = fence.ReplaceAllString(text, "\n\n")
	text = inlineCode.ReplaceAllString(text, "x")
	for _, p := range paragraphEnd.Split(text, -1) {
		all = append(all, strings.Join(strings.Fields(p), " "))
	}
	return all
}

// comments returns the comments of a Go file, those on lines that follow each other as one.
func comments(source []byte) (all []string) {
	file := token.NewFileSet().AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	last := -1
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return all
		}
		if tok != token.COMMENT || strings.HasPrefix(text, "//go:") || strings.HasPrefix(text, "//nolint") {
			continue
		}
		line := file.Line(pos)
		text = strings.TrimPrefix(strings.TrimPrefix(text, "//"), " ")
		if line == last+1 {
			all[len(all)-1] += "\n" + text
		} else {
			all = append(all, text)
		}
		last = line
	}
}

// The documents and comments of the project have none of the words that readers stopped at.
func TestWords(t *testing.T) {
	for path, text := range documents(t) {
		for _, p := range paragraphs(text) {
			assert.Empty(t, hard(p), path)
		}
	}
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || path == "../test/words_test.go" {
			return err
		}
		source, err := os.ReadFile(path)
		for _, c := range comments(source) {
			for _, p := range paragraphs(c) {
				assert.Empty(t, hard(p), path)
			}
		}
		return err
	}))
}

func TestHardWords(t *testing.T) {
	source := []byte("package p\n\n// f is told of it.\n// Who asks\n// gets it. What now?\nfunc f() {} // Where x is 0, it ends.\n")
	var found []string
	for _, c := range comments(source) {
		for _, p := range paragraphs(c) {
			found = append(found, hard(p)...)
		}
	}
	require.Len(t, found, 3, "%q", found)
	require.Empty(t, hard("A caller that was refused gets an error. What is it?"))
	require.Len(t, hard("It is mended, and made anew."), 2)
}
