package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// clientDirs are the directories of the client's packages. The root's is "".
var clientDirs = []string{
	"", "internal/pull", "internal/transport", "internal/worker", "internal/wire", "internal/lifecycle", "internal/crash", "internal/deadletter", "internal/running",
}

// The client is small enough to be owned, and stays so. A line is a line of a
// file that is no test, comments and blank ones included.
const (
	rootLines, rootFiles = 3071, 15
	clientLines          = 8755
	testLines            = 16420 // of its tests, those on real servers and the simulation included
)

// clientFiles are the sources of the client, tests left out.
func clientFiles(t *testing.T) map[string]string { return goFiles(t, clientDirs, false) }

// goFiles are the tests in directories, or the other Go files, by their paths in the project.
func goFiles(t *testing.T, dirs []string, tests bool) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, dir := range dirs {
		names, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		require.NoError(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") != tests {
				continue
			}
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			files[path.Join(dir, filepath.Base(name))] = string(text)
		}
	}
	return files
}

func TestDesignNamesEveryFile(t *testing.T) {
	design, err := os.ReadFile("../DESIGN.md")
	require.NoError(t, err)
	files := clientFiles(t)
	for _, wrong := range tableViolations(string(design), slices.Collect(maps.Keys(files))) {
		t.Error(wrong)
	}
}

func TestTheClientIsSmall(t *testing.T) {
	inRoot, root, all := 0, 0, 0
	for name, text := range clientFiles(t) {
		lines := strings.Count(text, "\n")
		all += lines
		if path.Dir(name) == "." {
			inRoot, root = inRoot+1, root+lines
		}
	}
	require.LessOrEqual(t, inRoot, rootFiles, "files in the root package")
	require.LessOrEqual(t, root, rootLines, "lines in the root package")
	require.LessOrEqual(t, all, clientLines, "lines in the client")
}

func TestTheTestsOfTheClientAreSmall(t *testing.T) {
	lines := 0
	for _, text := range goFiles(t, append([]string{"test", "test/sim", "test/servertest"}, clientDirs...), true) {
		lines += strings.Count(text, "\n")
	}
	require.LessOrEqual(t, lines, testLines, "lines of tests: does another test fail for the same bug?")
}

// TestTheEngineIsPure: the pull engine starts no goroutine and knows no channel.
// TestImportRules keeps locks and clocks out of it.
func TestTheEngineIsPure(t *testing.T) {
	for _, wrong := range impurities(t, clientFiles(t)) {
		t.Error(wrong)
	}
	require.Len(t, impurities(t, map[string]string{
		"internal/pull/a.go":      "package pull\nfunc f() { go f(); _ = make(chan int) }",
		"internal/transport/a.go": "package transport\nfunc f() { go f() }",
	}), 2, "the check can fail")
}

func impurities(t *testing.T, files map[string]string) (wrong []string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Dir(name) != "internal/pull" {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, files[name], 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.ChanType, *ast.SendStmt, *ast.SelectStmt:
				wrong = append(wrong, fmt.Sprintf("%s: a goroutine or a channel in the pull engine", fset.Position(n.Pos())))
			}
			return true
		})
	}
	return wrong
}

// tableViolations compares the file table of DESIGN.md with the files that there
// are. That is the one table whose first two columns are headed "package" and
// "file" or "files": `jetpull` or `internal/pull` in the first, which may be left
// empty for that of the row above, and one or more names such as `engine.go` in the
// second, all in backquotes.
func tableViolations(design string, files []string) []string {
	named, wrong := fileTable(design)
	for _, file := range files {
		if !slices.Contains(named, file) {
			wrong = append(wrong, fmt.Sprintf("DESIGN.md does not name %s", file))
		}
	}
	for i, file := range named {
		if !slices.Contains(files, file) {
			wrong = append(wrong, fmt.Sprintf("DESIGN.md names %s, which is no file of the client", file))
		}
		if slices.Contains(named[:i], file) {
			wrong = append(wrong, fmt.Sprintf("DESIGN.md names %s twice", file))
		}
	}
	slices.Sort(wrong)
	return wrong
}

var quoted = regexp.MustCompile("`([^`]+)`")

func fileTable(design string) (named, wrong []string) {
	inTable, tables, dir := false, 0, ""
	for line := range strings.Lines(design) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) < 2 {
			inTable = false
			continue
		}
		first, second := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1])
		switch {
		case first == "package" && (second == "file" || second == "files"):
			inTable, tables = true, tables+1
		case !inTable || strings.Trim(first, "-: ") == "" && strings.Trim(second, "-: ") == "":
		default:
			if m := quoted.FindStringSubmatch(first); m != nil {
				dir = strings.TrimPrefix(strings.TrimPrefix(m[1], "jetpull"), "/")
			}
			for _, m := range quoted.FindAllStringSubmatch(second, -1) {
				named = append(named, path.Join(dir, m[1]))
			}
		}
	}
	if tables != 1 {
		wrong = append(wrong, fmt.Sprintf("DESIGN.md has %d tables with the columns package and files, want one", tables))
	}
	return named, wrong
}

func TestTableViolationsFire(t *testing.T) {
	const table = "text `other.go`\n\n| package | files | what |\n|---|:---|---|\n| `jetpull` | `doc.go`, `fetch.go` | `not.go` |\n" +
		"| `internal/pull` | `engine.go` | |\n| | `credit.go` | |\n\n| other | `table.go` |\n"
	good := []string{"doc.go", "fetch.go", "internal/pull/engine.go", "internal/pull/credit.go"}
	for name, tc := range map[string]struct {
		design string
		files  []string
		want   string
	}{
		"complete":           {table, good, ""},
		"a file is missing":  {table, append(good, "stats.go"), "does not name stats.go"},
		"in another package": {table, append(good, "internal/worker/doc.go"), "does not name internal/worker/doc.go"},
		"a file is gone":     {table, good[1:], "names doc.go, which is no file"},
		"named twice":        {strings.Replace(table, "`credit.go`", "`credit.go`, `credit.go`", 1), good, "names internal/pull/credit.go twice"},
		"no table":           {"`doc.go`", nil, "0 tables"},
	} {
		got := tableViolations(tc.design, tc.files)
		if tc.want == "" {
			require.Empty(t, got, name)
			continue
		}
		require.Len(t, got, 1, name)
		require.Contains(t, got[0], tc.want, name)
	}
}

// systemLines are the most lines of each system, of the command, the console and package partition, without tests. The feed's test server counts as a
// test.
var systemLines = map[string]int{"broker": 11633, "relay": 6154, "feed": 6227, "cmd": 8333, "console": 10340, "partition": 1558}

// TestTheSystemsAreSmall holds the code of systemLines against its limits.
func TestTheSystemsAreSmall(t *testing.T) {
	for system, most := range systemLines {
		lines := 0
		for name, text := range sources(t, system) {
			if !strings.Contains(filepath.ToSlash(name), "cmd/jetpull/browser/") { // tests, and a demo
				lines += strings.Count(text, "\n")
			}
		}
		require.LessOrEqual(t, lines, most, "lines of %s: cut some, or say in the commit why it needs more", system)
	}
}
