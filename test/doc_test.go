package test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// publicPackage is a package that users can import.
type publicPackage struct {
	ImportPath, Dir, Name string
	GoFiles               []string
}

// publicPackages lists the module's packages that are neither internal nor a
// command and do not serve the tests or the examples.
func publicPackages(t *testing.T) []publicPackage {
	t.Helper()
	packages := slices.DeleteFunc(goList[publicPackage](t), func(p publicPackage) bool { return !importable(p) })
	require.NotEmpty(t, packages)
	require.Equal(t, module, packages[0].ImportPath, "the root package comes first")
	return packages
}

// goList asks the go command for facts of all packages of all modules.
func goList[T any](t *testing.T, args ...string) (all []T) {
	t.Helper()
	readSources(t)
	cmd := exec.Command("go", append(append([]string{"list", "-json"}, args...), "work")...)
	cmd.Dir = ".."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go list: %s", stderr.String())
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p T
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, "go list printed what is not JSON")
		all = append(all, p)
	}
}

// readSources looks at every Go file of the module. go test reuses a result as
// long as what the test process itself has read is the same, and the go commands
// that these tests run are not seen: without this a new import or a changed API
// would meet an old "ok".
func readSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != ".." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "out"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		_, err = os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an editor's file, gone since the directory was read
		}
		return err
	})
	require.NoError(t, err)
}

func importable(p publicPackage) bool {
	return p.Name != "main" && len(p.GoFiles) > 0 && !strings.Contains(p.ImportPath+"/", "/internal/") &&
		shipped(p.ImportPath)
}

func TestImportable(t *testing.T) {
	files := []string{"a.go"}
	require.True(t, importable(publicPackage{ImportPath: module, Name: "jetpull", GoFiles: files}))
	require.True(t, importable(publicPackage{ImportPath: module + "/broker/client", Name: "client", GoFiles: files}))
	require.False(t, importable(publicPackage{ImportPath: module + "/broker/client", Name: "client"}))
	require.False(t, importable(publicPackage{ImportPath: module + "/cmd/jetpull", Name: "main", GoFiles: files}))
	require.False(t, importable(publicPackage{ImportPath: module + "/internal/wire", Name: "wire", GoFiles: files}))
	require.False(t, importable(publicPackage{ImportPath: module + "/test", Name: "test", GoFiles: files}))
	require.False(t, importable(publicPackage{ImportPath: module + "/otelpull/test", Name: "test", GoFiles: files}))
}

// TestEveryExportedNameIsDocumented wants a comment on every exported function,
// method, type, constant and variable. Fields of a struct are left to its author: a
// comment that says no more than the name would be worse than none.
func TestEveryExportedNameIsDocumented(t *testing.T) {
	for _, p := range publicPackages(t) {
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			require.NoError(t, err)
			files = append(files, file)
		}
		for _, missing := range undocumented(t, fset, files) {
			t.Errorf("%s: %s has no comment", p.ImportPath, missing)
		}
	}
}

// undocumented names what is exported by a package and has no comment, in order. One
// comment may speak for a group of constants or variables.
func undocumented(t *testing.T, fset *token.FileSet, files []*ast.File) (missing []string) {
	t.Helper()
	p, err := doc.NewFromFiles(fset, files, module)
	require.NoError(t, err)
	want := func(comment, name string) {
		if comment == "" {
			missing = append(missing, name)
		}
	}
	functions := func(of string, funcs []*doc.Func) {
		for _, f := range funcs {
			want(f.Doc, of+f.Name)
		}
	}
	values := func(all []*doc.Value) {
		for _, v := range all {
			for _, spec := range v.Decl.Specs {
				spec := spec.(*ast.ValueSpec)
				want(v.Doc+spec.Doc.Text()+spec.Comment.Text(), spec.Names[0].Name)
			}
		}
	}
	want(p.Doc, "the package")
	functions("", p.Funcs)
	values(append(p.Consts, p.Vars...))
	for _, typ := range p.Types {
		want(typ.Doc, typ.Name)
		functions("", typ.Funcs)
		functions(typ.Name+".", typ.Methods)
		values(append(typ.Consts, typ.Vars...))
	}
	slices.Sort(missing)
	return missing
}

func TestUndocumentedFindsAll(t *testing.T) {
	const source = `package p

func Bare() {}

// Good is good.
func Good() {}

func hidden() {}

type Type struct{ Field int }

func (t *Type) Method() {}
func (t *Type) method() {}
func (h hid) Method()   {}

func New() *Type { return nil }

// A group.
const (
	One = 1
	Two = 2
)

var Lone, lone = 1, 2

const Kind Type = 1

type hid struct{ Field int }
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, parser.ParseComments)
	require.NoError(t, err)
	require.Equal(t, []string{"Bare", "Kind", "Lone", "New", "Type", "Type.Method", "the package"}, undocumented(t, fset, []*ast.File{file}))
}

// Each package that users import has an example that go doc shows and go test compiles.
func TestEveryPackageHasAnExample(t *testing.T) {
	for _, p := range publicPackages(t) {
		files, err := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		require.NoError(t, err)
		has := slices.ContainsFunc(files, func(file string) bool {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			return strings.Contains(string(source), "\nfunc Example")
		})
		require.True(t, has, "%s has no example", p.ImportPath)
	}
}
