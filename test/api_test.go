package test

import (
	"bytes"
	"flag"
	"fmt"
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
			if diff := firstDifference(string(want), string(got)); diff != "" {
				t.Errorf("the API of %s is not that of %s: if the change was meant, make api\n%s", p.ImportPath, path, diff)
			}
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

func TestFirstDifference(t *testing.T) {
	for _, tt := range []struct{ want, got, diff string }{
		{"", "", ""},
		{"a\nb\n", "a\nb\n", ""},
		{"a\nb\n", "a\nc\n", "line 2:\n-b\n+c"},
		{"a\nb\n", "a\n", "line 2:\n-b\n+"},
		{"a\n", "a\nb\n", "line 2:\n-\n+b"},
		{"a\n", "a", "line 2:\n-\n+(end of file)"},
	} {
		require.Equal(t, tt.diff, firstDifference(tt.want, tt.got))
	}
}

func TestGoldenName(t *testing.T) {
	require.Equal(t, "jetpull.txt", goldenName(module))
	require.Equal(t, "broker_client.txt", goldenName(module+"/broker/client"))
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

// firstDifference returns the first line in which two texts differ, or "".
func firstDifference(want, got string) string {
	if want == got {
		return ""
	}
	const end = "(end of file)"
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(a), len(b)) {
		was, is := end, end
		if i < len(a) {
			was = a[i]
		}
		if i < len(b) {
			is = b[i]
		}
		if was != is {
			return fmt.Sprintf("line %d:\n-%s\n+%s", i+1, was, is)
		}
	}
	return ""
}
