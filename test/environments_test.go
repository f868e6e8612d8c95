package test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// environments and environmentParts are the rows and columns of the table of environments in test/README.md.
var (
	environments     = []string{"E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "E9", "E10", "E11"}
	environmentParts = []string{"client", "partition", "limit", "broker", "relay", "feed", "console"}
)

const environmentHeading = "## Environments\n"

// namedTest is a test that a cell names: by itself where no other has its name, else with the folder of its package.
var namedTest = regexp.MustCompile("`(?:(\\.[/\\w]*) )?(Test\\w+)`")

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(\w+ \*testing\.T\)`)

// testFunctions are the folders of the tests of the project, by name.
func testFunctions(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "out") {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		dir, _ := filepath.Rel("..", filepath.Dir(path))
		if dir = filepath.ToSlash(dir); dir != "." {
			dir = "./" + dir
		}
		for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
			found[m[1]] = append(found[m[1]], dir)
		}
		return err
	}))
	return found
}

// environmentViolations says what is wrong with the table of a document: with its rows, columns, and cells.
func environmentViolations(document string, tests map[string][]string) (wrong []string) {
	_, section, _ := strings.Cut(document, environmentHeading)
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]bool{}
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		row, _, _ := strings.Cut(cells[0], " ")
		switch {
		case cells[0] == "environment":
			if !slices.Equal(cells[1:], environmentParts) {
				wrong = append(wrong, fmt.Sprintf("the columns are %v, want %v", cells[1:], environmentParts))
			}
			continue
		case strings.Trim(cells[0], "-: ") == "":
			continue
		case !slices.Contains(environments, row) || rows[row]:
			wrong = append(wrong, fmt.Sprintf("%s is a second row, or no environment", row))
		case len(cells) != 1+len(environmentParts):
			wrong = append(wrong, fmt.Sprintf("%s has %d cells, want %d", row, len(cells)-1, len(environmentParts)))
			rows[row] = true
			continue
		}
		rows[row] = true
		for i, cell := range cells[1:] {
			wrong = append(wrong, cellViolations(row+" "+environmentParts[i], cell, tests)...)
		}
	}
	for _, row := range environments {
		if !rows[row] {
			wrong = append(wrong, row+" has no row")
		}
	}
	return wrong
}

// cellViolations says what is wrong with one cell: it names tests that exist, or begins with what is missing and says why.
func cellViolations(name, cell string, tests map[string][]string) (wrong []string) {
	named := namedTest.FindAllStringSubmatch(cell, -1)
	if len(named) == 0 {
		for _, begin := range []string{"not promised: ", "does not apply: "} {
			if len(cell) > len(begin) && strings.HasPrefix(cell, begin) {
				return nil
			}
		}
		return []string{fmt.Sprintf("%s names no test, and does not say why: %q", name, cell)}
	}
	for _, m := range named {
		switch dirs := tests[m[2]]; {
		case m[1] != "" && !slices.Contains(dirs, m[1]):
			wrong = append(wrong, fmt.Sprintf("%s: %s has no %s", name, m[1], m[2]))
		case m[1] == "" && len(dirs) != 1:
			wrong = append(wrong, fmt.Sprintf("%s: %s is in %d packages, want 1, or name its folder", name, m[2], len(dirs)))
		}
	}
	if strings.Count(cell, "Test") != len(named) {
		wrong = append(wrong, name+": a test is not written as `TestName` or `./folder TestName`")
	}
	return wrong
}

// The table of environments is complete, and each test that it names exists.
func TestEnvironments(t *testing.T) {
	document, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.Empty(t, environmentViolations(string(document), testFunctions(t)))
}

func TestEnvironmentViolationsFire(t *testing.T) {
	tests := map[string][]string{"TestA": {"."}, "TestB": {"./broker", "./relay"}}
	table := func(change map[string]string) string {
		var text strings.Builder
		text.WriteString("| other | table |\n\n" + environmentHeading + "\n| environment | " + strings.Join(environmentParts, " | ") + " |\n|---|---|\n")
		for _, row := range environments {
			cell := "`TestA`"
			if changed, ok := change[row]; ok {
				cell = changed
			}
			if cell != "none" {
				fmt.Fprintf(&text, "| %s what it is | %s |%s\n", row, cell, strings.Repeat(" not promised: so |", len(environmentParts)-1))
			}
		}
		return text.String() + "\n## Next\n| E1 | `TestNone` |\n"
	}
	require.Empty(t, environmentViolations(table(nil), tests))
	require.Empty(t, environmentViolations(table(map[string]string{
		"E2": "`./broker TestB`, and `./relay TestB`",
		"E3": "does not apply: it stores nothing",
	}), tests))
	for cell, want := range map[string]string{
		"":                    "E4 client names no test",
		"not promised: ":      "E4 client names no test",
		"TestA":               "E4 client names no test",
		"`TestC`":             "E4 client: TestC is in 0 packages",
		"`TestB`":             "E4 client: TestB is in 2 packages",
		"`./feed TestB`":      "E4 client: ./feed has no TestB",
		"`TestA` and TestB":   "E4 client: a test is not written",
		"`TestA` | `TestA`":   "E4 has 8 cells, want 7",
		"none":                "E4 has no row",
		"`TestA`, `./ TestA`": "E4 client: ./ has no TestA",
	} {
		got := environmentViolations(table(map[string]string{"E4": cell}), tests)
		require.Len(t, got, 1, "%q: %v", cell, got)
		require.Contains(t, got[0], want, "%q", cell)
	}
	twice := strings.Replace(table(nil), "| E5 what", "| E4 what", 1)
	require.Equal(t, []string{"E4 is a second row, or no environment", "E5 has no row"}, environmentViolations(twice, tests))
	require.Len(t, environmentViolations(strings.Replace(table(nil), "| feed |", "|", 1), tests), 1, "a column is missing")
}
