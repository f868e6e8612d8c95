package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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
	readSources(t)
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,GoFiles", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	require.NoError(t, err)
	var packages []publicPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p publicPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list printed what is not JSON: %v", err)
		}
		if importable(p) {
			packages = append(packages, p)
		}
	}
	require.NotEmpty(t, packages)
	require.Equal(t, module, packages[0].ImportPath, "the root package comes first")
	return packages
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
		!within(p.ImportPath, module+"/test") && !within(p.ImportPath, module+"/examples")
}

func TestImportable(t *testing.T) {
	files := []string{"a.go"}
	require.True(t, importable(publicPackage{ImportPath: module, Name: "jetpull", GoFiles: files}))
	require.True(t, importable(publicPackage{ImportPath: module + "/broker/client", Name: "client", GoFiles: files}))
	require.False(t, importable(publicPackage{ImportPath: module + "/broker/client", Name: "client"}))
	require.False(t, importable(publicPackage{ImportPath: module + "/cmd/jetpull", Name: "main", GoFiles: files}))
	require.False(t, importable(publicPackage{ImportPath: module + "/internal/wire", Name: "wire", GoFiles: files}))
	require.False(t, importable(publicPackage{ImportPath: module + "/broker/internal", Name: "internal", GoFiles: files}))
	require.False(t, importable(publicPackage{ImportPath: module + "/test", Name: "test", GoFiles: files}))
}

// TestEveryExportedNameIsDocumented wants a comment on every exported function,
// method, type, constant and variable, and on the methods of interfaces. Fields
// of a struct are left to its author: a comment that says no more than the name
// would be worse than none.
func TestEveryExportedNameIsDocumented(t *testing.T) {
	for _, p := range publicPackages(t) {
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, file)
		}
		for _, missing := range undocumented(fset, files) {
			t.Errorf("%s: %s", p.ImportPath, missing)
		}
	}
}

// undocumented names what is exported by a package and has no comment.
func undocumented(fset *token.FileSet, files []*ast.File) []string {
	d := docs{fset: fset}
	packageDoc := false
	for _, file := range files {
		packageDoc = packageDoc || file.Doc != nil
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				d.function(decl)
			case *ast.GenDecl:
				d.general(decl)
			}
		}
	}
	if !packageDoc {
		d.missing = append(d.missing, "the package has no comment")
	}
	return d.missing
}

type docs struct {
	fset    *token.FileSet
	missing []string
}

func (d *docs) want(documented bool, name *ast.Ident, prefix string) {
	if name.IsExported() && !documented {
		pos := d.fset.Position(name.Pos())
		d.missing = append(d.missing, fmt.Sprintf("%s%s (%s:%d) has no comment",
			prefix, name.Name, filepath.Base(pos.Filename), pos.Line))
	}
}

func (d *docs) function(f *ast.FuncDecl) {
	prefix := ""
	if f.Recv != nil && len(f.Recv.List) > 0 {
		receiver := receiverName(f.Recv.List[0].Type)
		if !ast.IsExported(receiver) {
			return
		}
		prefix = receiver + "."
	}
	d.want(f.Doc != nil, f.Name, prefix)
}

func receiverName(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return receiverName(expr.X)
	case *ast.IndexExpr:
		return receiverName(expr.X)
	case *ast.IndexListExpr:
		return receiverName(expr.X)
	case *ast.Ident:
		return expr.Name
	}
	return ""
}

// general takes the comment of a group for all constants and variables in it,
// but each type needs its own.
func (d *docs) general(g *ast.GenDecl) {
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				d.want(g.Doc != nil || spec.Doc != nil || spec.Comment != nil, name, "")
			}
		case *ast.TypeSpec:
			alone := len(g.Specs) == 1 && g.Doc != nil
			d.want(alone || spec.Doc != nil || spec.Comment != nil, spec.Name, "")
			if face, ok := spec.Type.(*ast.InterfaceType); ok && spec.Name.IsExported() {
				d.methods(face.Methods, spec.Name.Name+".")
			}
		}
	}
}

// methods lets one comment speak for the run of lines under it. A blank line
// ends the run. What is embedded has its comment elsewhere.
func (d *docs) methods(list *ast.FieldList, prefix string) {
	documented, end := false, 0
	for _, field := range list.List {
		own := field.Doc != nil || field.Comment != nil
		adjacent := d.fset.Position(field.Pos()).Line == end+1
		documented = own || documented && adjacent
		end = d.fset.Position(field.End()).Line
		for _, name := range field.Names {
			d.want(documented, name, prefix)
		}
	}
}

func TestUndocumentedFindsAll(t *testing.T) {
	const source = `package p

func Bare() {}

// Good is good.
func Good() {}

func hidden() {}

type Type struct {
	Field int
}

// Face is documented.
type Face interface {
	Call()
	// Told is documented.
	Told()
	Run()

	After()
	Line() // of its own
	hidden()
	fmt.Stringer
}

func (t *Type) Method()       {}
func (t *Type) method()       {}
func (t *Generic[K]) Method() {}
func (h hid) Method()         {}

// A group.
const (
	One = 1
	Two = 2
)

var Lone, lone = 1, 2

// A comment on a group of types names none of them.
type (
	Generic[K any] struct{}
	hid            struct{ Field int }
)
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, parser.ParseComments)
	require.NoError(t, err)
	require.Equal(t, []string{
		"Bare (p.go:3) has no comment",
		"Type (p.go:10) has no comment",
		"Face.Call (p.go:16) has no comment",
		"Face.After (p.go:21) has no comment",
		"Type.Method (p.go:27) has no comment",
		"Generic.Method (p.go:29) has no comment",
		"Lone (p.go:38) has no comment",
		"Generic (p.go:42) has no comment",
		"the package has no comment",
	}, undocumented(fset, []*ast.File{file}))
}
