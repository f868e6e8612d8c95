package test

import (
	"encoding/json"
	"errors"
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
