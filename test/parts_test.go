package test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The parts of a system are small: an interface has what its user calls, and a type is not everything.
const (
	interfaceMethods = 12
	typeMethods      = 30
)

// partRules says of a system which of its packages do not know which others, and that its DESIGN.md has the tables that a reader of
// the code needs.
type partRules struct {
	dir      string
	headings []string
	// down are rules for imports: the first may not import the second, each a package below the system's.
	down [][2]string
}

// parted are the systems that are held to that.
var parted = []partRules{
	{
		dir:      "broker",
		headings: []string{"## Invariants", "## Goroutines", "## Lock order", "## From a broadcast to its callback"},
		down: [][2]string{
			{"internal/domain", "internal"},
			{"internal/journal", "internal/work"},
			{"internal/admin", "internal/journal"},
			{"internal/admin", "internal/work"},
			{"internal/work", "internal/journal"},
			{"internal/work", "internal/httpapi"},
			{"internal/httpapi", "internal/journal"},
			{"internal/jobindex", "internal/journal"},
			{"internal/shards", "internal/journal"},
			{"internal", "backup"},
		},
	},
	{
		dir:      "relay",
		headings: []string{"## From the queue to the POST", "## Invariants", "## Goroutines", "## Lock order"},
		down: [][2]string{
			{"internal/machine", "internal"},
			{"internal/store", "internal/work"},
			{"internal/store", "internal/httpapi"},
			{"internal/work", "internal/httpapi"},
			{"internal", "client"},
			{"client", "internal"},
		},
	},
	{
		dir:      "feed",
		headings: []string{"## The way of an item", "## Invariants", "## Goroutines", "## Lock order"},
		down: [][2]string{
			{"internal/engine", "feedmetrics"},
			{"internal/sqlstore", "internal/engine"},
			{"internal/sqlstore", "feedmetrics"},
		},
	},
}

func TestSystemsAreMadeOfParts(t *testing.T) {
	imports := goList[struct {
		ImportPath string
		Imports    []string
	}](t)
	for _, rules := range parted {
		for _, wrong := range partViolations(t, sources(t, rules.dir)) {
			t.Error(wrong)
		}
		design, err := os.ReadFile(filepath.Join("..", rules.dir, "DESIGN.md"))
		require.NoError(t, err)
		for _, heading := range rules.headings {
			require.Contains(t, string(design), "\n"+heading+"\n", rules.dir)
		}
		found := map[string]bool{}
		for _, p := range imports {
			for _, rule := range rules.down {
				from, to := path.Join(module, rules.dir, rule[0]), path.Join(module, rules.dir, rule[1])
				found[rule[0]] = found[rule[0]] || within(p.ImportPath, from)
				if !within(p.ImportPath, from) {
					continue
				}
				for _, imported := range p.Imports {
					require.False(t, within(imported, to) && !within(imported, from), "%s imports %s, which is above it", p.ImportPath, imported)
				}
			}
		}
		for _, rule := range rules.down {
			require.True(t, found[rule[0]], "%s/%s: there is no such package, and rules are about it", rules.dir, rule[0])
		}
	}
}

// sources are the files of a system, tests left out.
func sources(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(filepath.Join("..", dir), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		files[name] = string(text)
		return err
	}))
	return files
}

// partViolations names the interfaces and types with too many methods.
func partViolations(t *testing.T, files map[string]string) (wrong []string) {
	t.Helper()
	methods := map[string]int{} // by type
	for name, text := range files {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.InterfaceType:
				if count := n.Methods.NumFields(); count > interfaceMethods {
					wrong = append(wrong, fmt.Sprintf("%s: an interface of %d methods, want at most %d", fset.Position(n.Pos()), count, interfaceMethods))
				}
			case *ast.FuncDecl:
				if n.Recv != nil {
					methods[filepath.Dir(name)+"."+receiverName(n.Recv.List[0].Type)]++
				}
			}
			return true
		})
	}
	for name, count := range methods {
		if count > typeMethods {
			wrong = append(wrong, fmt.Sprintf("%s has %d methods, want at most %d", name, count, typeMethods))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// receiverName is the name of a receiver's type, without pointer and parameters.
func receiverName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.IndexListExpr:
		return receiverName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func TestPartViolationsFire(t *testing.T) {
	large := "package p\n\ntype I interface {\n"
	for i := range interfaceMethods + 1 {
		large += fmt.Sprintf("\tM%d()\n", i)
	}
	var many strings.Builder
	for i := range typeMethods + 1 {
		fmt.Fprintf(&many, "func (t *T[K]) M%d() {}\n", i)
	}
	require.Equal(t, []string{"a.go:3:8: an interface of 13 methods, want at most 12"}, partViolations(t, map[string]string{"a.go": large + "}\n"}))
	require.Equal(t, []string{"x.T has 31 methods, want at most 30"}, partViolations(t, map[string]string{"x/a.go": "package p\n" + many.String()}))
	require.Empty(t, partViolations(t, map[string]string{
		"x/a.go": "package p\ntype I interface{ M() }\nfunc (t T) M() {}\n",
		"y/a.go": "package q\nfunc (t T) M() {}\n",
	}))
}

// The way of a broadcast is short: so many files and packages at most decide about a message.
const wayFiles, wayPackages = 13, 5

// wayLine is a line of the figure: a package, unless it is that of the line above, a file, and what is called there.
var wayLine = regexp.MustCompile(`(?m)^ {2}(\w*) +(\w+\.go) +(\w+)\.(\w+)`)

// wayViolations holds the figure of a DESIGN.md under "From a broadcast to its callback" against the sources, by their paths.
func wayViolations(design string, files map[string]string) (wrong []string) {
	_, figure, _ := strings.Cut(design, "## From a broadcast to its callback")
	figure, _, _ = strings.Cut(figure, "\n## ")
	pkg, seen, packages := "", map[string]bool{}, map[string]bool{}
	for _, m := range wayLine.FindAllStringSubmatch(figure, -1) {
		pkg = cmp.Or(m[1], pkg)
		name := ""
		for _, dir := range []string{"broker/internal", "internal", "internal/service"} {
			if name = path.Join(dir, pkg, m[2]); files[name] != "" {
				break
			}
		}
		seen[name], packages[path.Dir(name)] = true, true
		if !strings.Contains(files[name], m[3]+") "+m[4]+"(") {
			wrong = append(wrong, fmt.Sprintf("%s has no method %s of %s", name, m[4], m[3]))
		}
	}
	if len(seen) > wayFiles || len(seen) < 2 {
		wrong = append(wrong, fmt.Sprintf("%d files, want 2 to %d", len(seen), wayFiles))
	}
	if len(packages) > wayPackages {
		wrong = append(wrong, fmt.Sprintf("%d packages, want at most %d", len(packages), wayPackages))
	}
	return wrong
}

func TestTheWayOfABroadcast(t *testing.T) {
	design, err := os.ReadFile("../broker/DESIGN.md")
	require.NoError(t, err)
	files := map[string]string{}
	for _, pattern := range []string{"../broker/internal/*/*.go", "../internal/*/*.go", "../internal/service/*/*.go"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			files[strings.TrimPrefix(filepath.ToSlash(name), "../")] = string(text)
		}
	}
	require.Empty(t, wayViolations(string(design), files))
	for figure, want := range map[string]string{
		"  work     lane.go      lane.run\n           pause.go     lane.none\n": "has no method none",
		"  work     lane.go      lane.run\n":                                    "1 files",
		"":                                                                      "0 files",
	} {
		require.Contains(t, strings.Join(wayViolations("## From a broadcast to its callback\n"+figure, files), "\n"), want)
	}
}
