package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// replaced is what examples/go.mod has for a module of the tree.
var replaced = regexp.MustCompile(`(?m)^\t(\S+) => (\.\.\S*)$`)

// TestExamplesCanBeCopied compiles each example, with its tests, as a package of a module outside of the tree. The demos
// are left out: they show what jetpull does, with charts that internal packages draw, and are none to copy.
func TestExamplesCanBeCopied(t *testing.T) {
	readSources(t)
	dir := t.TempDir()
	mains, err := filepath.Glob("../examples/*/main.go")
	require.NoError(t, err)
	copied := 0
	for _, main := range mains {
		folder := filepath.Dir(main)
		name := filepath.Base(folder)
		if strings.HasPrefix(name, "demo") {
			continue
		}
		require.NoError(t, os.CopyFS(filepath.Join(dir, name), os.DirFS(folder)))
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NotContains(t, string(text), `"`+module+"/test/", "%s: that module is of this tree alone; use natsembed", file)
		}
		copied++
	}
	require.Greater(t, copied, 10)

	mod, err := os.ReadFile("../examples/go.mod")
	require.NoError(t, err)
	text := strings.Replace(string(mod), "module "+module+"/examples\n", "module example.com/copied\n", 1)
	text = replaced.ReplaceAllStringFunc(text, func(line string) string {
		m := replaced.FindStringSubmatch(line)
		path, err := filepath.Abs(filepath.Join("../examples", m[2]))
		require.NoError(t, err)
		return "\t" + m[1] + " => " + path
	})
	require.NotContains(t, text, "=> ..")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o600))
	sum, err := os.ReadFile("../examples/go.sum")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o600))
	// vet compiles, and does not link fifteen servers as build would.
	cmd := exec.Command("go", "vet", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "go vet: %s", out)
}
