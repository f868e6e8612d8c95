package test

import (
	"encoding/json"
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

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	target  = regexp.MustCompile("(?m)(?:^|`|^    )make ([a-z-]+)")
)

// documents returns the Markdown files of the project, by path from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "out") {
			return fs.SkipDir
		}
		if err == nil && filepath.Ext(path) == ".md" {
			text, err := os.ReadFile(path)
			found[path] = string(text)
			return err
		}
		return err
	}))
	require.Greater(t, len(found), 10)
	return found
}

// anchors returns the names by which links reach the headings of a document.
func anchors(text string) (names []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := strings.ToLower(link.ReplaceAllString(m[1], ""))
		name = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(name, "")
		names = append(names, strings.ReplaceAll(strings.TrimSpace(name), " ", "-"))
	}
	return names
}

// broken returns the links of the document at path that lead nowhere within the project.
func broken(path string, all map[string]string) (links []string) {
	for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(all[path], ""), -1) {
		if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
			continue
		}
		file, anchor, _ := strings.Cut(m[1], "#")
		to := path
		if file != "" {
			to = filepath.Join(filepath.Dir(path), file)
		}
		if _, err := os.Stat(to); err != nil || anchor != "" && !slices.Contains(anchors(all[to]), anchor) {
			links = append(links, m[1])
		}
	}
	return links
}

// Each link of a document to a file of the project, or to a heading in one, leads there.
func TestLinks(t *testing.T) {
	all := documents(t)
	for path := range all {
		assert.Empty(t, broken(path, all), path)
	}
	sample := map[string]string{"../a.md": "# A `b`: c\n[x](a.md#a-b-c) [y](a.md#d) [z](nothing.go) [web](https://example.com/no)\n"}
	require.Equal(t, []string{"a.md#a-b-c", "a.md#d", "nothing.go"}, broken("../a.md", sample), "a file that is not there")
	require.Equal(t, []string{"a-b-c"}, anchors(sample["../a.md"]))
}

// Each make target that a document names is in the Makefile.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	for path, text := range documents(t) {
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			assert.Contains(t, string(makefile), "\n"+m[1]+":", "%s: make %s", path, m[1])
		}
	}
}

// The navigation of the site has each page of docs once, no page that does not exist, and no more pages than a reader can choose from.
func TestLinksOfTheSite(t *testing.T) {
	text, err := os.ReadFile("../site/pages.json")
	require.NoError(t, err)
	var groups map[string][][2]string
	require.NoError(t, json.Unmarshal(text, &groups))
	var listed []string
	for _, pages := range groups {
		for _, page := range pages {
			listed = append(listed, page[0])
			assert.FileExists(t, filepath.Join("..", page[0]))
		}
	}
	slices.Sort(listed)
	assert.Equal(t, slices.Compact(slices.Clone(listed)), listed, "a page is listed twice in site/pages.json")
	assert.LessOrEqual(t, len(listed), 28, "put the text on a page that exists")
	for path := range documents(t) {
		path = strings.TrimPrefix(filepath.ToSlash(path), "../")
		if filepath.Dir(path) == "docs" {
			assert.Contains(t, listed, path, "add the page to a group of site/pages.json")
		}
	}
}
