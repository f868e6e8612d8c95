package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// floorsOf reads the floors from the package documentation.
func floorsOf(t *testing.T, dir string) map[string]int {
	doc, err := os.ReadFile(filepath.Join(dir, "doc.go"))
	require.NoError(t, err)
	floor := map[string]int{"doc": 1}
	n := 0
	for line := range strings.Lines(string(doc)) {
		if names, ok := strings.CutPrefix(line, "//\t"); ok {
			n++
			for name := range strings.FieldsSeq(names) {
				floor[name] = n
			}
		}
	}
	return floor
}

func TestFilesCallLowerFloors(t *testing.T) {
	for _, name := range []string{"pull", "worker"} {
		t.Run(name, func(t *testing.T) { requireFloors(t, filepath.Join("..", "internal", name)) })
	}
}

func requireFloors(t *testing.T, dir string) {
	t.Helper()
	floor := floorsOf(t, dir)
	set := token.NewFileSet()
	var files []*ast.File
	for file := range floor {
		f, err := parser.ParseFile(set, filepath.Join(dir, file+".go"), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, f)
	}
	all, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, name := range all {
		name := strings.TrimSuffix(filepath.Base(name), ".go")
		require.True(t, floor[name] > 0 || strings.HasSuffix(name, "_test"), "%s.go is on no floor", name)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: emptyPackages{}, Error: func(error) {}} // the package's own names are enough
	_, _ = conf.Check("floors", set, files, info)
	at := func(p token.Pos) string { return strings.TrimSuffix(filepath.Base(set.Position(p).Filename), ".go") }
	calls := 0
	for use, object := range info.Uses {
		callee, ok := object.(*types.Func)
		if !ok || callee.Pkg() == nil || callee.Pkg().Path() != "floors" || !callee.Pos().IsValid() {
			continue
		}
		calls++
		from, to := at(use.Pos()), at(callee.Pos())
		if from != to && floor[from] <= floor[to] {
			t.Errorf("%s calls %s in %s.go, which is not on a lower floor", set.Position(use.Pos()), callee.Name(), to)
		}
	}
	require.Greater(t, calls, 100)
}

// emptyPackages imports empty packages.
type emptyPackages struct{}

func (emptyPackages) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, path[strings.LastIndexByte(path, '/')+1:])
	p.MarkComplete()
	return p, nil
}
