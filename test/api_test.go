package test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files of the public API anew")

const goldenDir = "testdata/api"

// TestAPI holds the documentation of every package that users import against
// the golden file of it, so that a change of the API is a line in a review.
func TestAPI(t *testing.T) {
	packages := publicPackages(t)
	golden := map[string]bool{}
	for _, p := range packages {
		path := filepath.Join(goldenDir, goldenName(p.ImportPath))
		golden[path] = true
		t.Run(p.ImportPath, func(t *testing.T) {
			got := goDoc(t, p.ImportPath)
			if *update {
				require.NoError(t, os.MkdirAll(goldenDir, 0o755))
				require.NoError(t, os.WriteFile(path, got, 0o644))
				return
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err, "a package without a golden file: make api writes it")
			was, is := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
			for i := range min(len(was), len(is)) {
				require.Equal(t, was[i], is[i], "line %d of %s: if the change was meant, make api", i+1, path)
			}
			require.Equal(t, len(was), len(is), "lines of %s: if the change was meant, make api", path)
		})
	}

	files, err := filepath.Glob(filepath.Join(goldenDir, "*.txt"))
	require.NoError(t, err)
	for _, file := range files {
		switch {
		case golden[file]:
		case *update:
			require.NoError(t, os.Remove(file))
		default:
			t.Errorf("%s is the API of a package that is gone: if that was meant, make api", file)
		}
	}
}

// goldenName returns the name of a package's golden file.
func goldenName(importPath string) string {
	if importPath == module {
		return "jetpull.txt"
	}
	rest := strings.TrimPrefix(importPath, module+"/")
	return strings.ReplaceAll(rest, "/", "_") + ".txt"
}

func goDoc(t *testing.T, importPath string) []byte {
	t.Helper()
	cmd := exec.Command("go", "doc", "-all", importPath)
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go doc -all %s: %s", importPath, stderr.String())
	return out
}
