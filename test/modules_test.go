package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mostModules is how many modules a user of the client has in `go list -m all`, their own
// and the client's included. nats.go alone brings most of them.
const mostModules = 16

// TestTheClientBringsLittle: a module that requires the root package alone compiles no
// server, and has few modules that a scanner looks at.
func TestTheClientBringsLittle(t *testing.T) {
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	readSources(t)
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", "module example.com/user\n\ngo 1.26.0\n\nrequire "+module+" v0.0.0\n\nreplace "+module+" => "+root+"\n")
	write("main.go", "package main\n\nimport \""+module+"\"\n\nfunc main() { _ = jetpull.Subscribe }\n")
	sums, err := os.ReadFile("../go.sum")
	require.NoError(t, err)
	write("go.sum", string(sums))

	run := func(args ...string) []string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		// In ci others build the same packages in this way.
		cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-mod=mod -trimpath -buildvcs=false -gcflags=all=-dwarf=false")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %s: %s", strings.Join(args, " "), out)
		return strings.Fields(string(out))
	}
	run("mod", "tidy")
	run("build", "-o", filepath.Join(dir, "user"), ".")
	for _, path := range run("list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".") {
		require.NotContains(t, path, "nats-server")
		require.True(t, !within(path, module) || path == module || path == module+"/limit" || within(path, module+"/internal"), path)
	}
	modules := run("list", "-m", "-f", "{{.Path}}", "all")
	require.Contains(t, modules, natsClient)
	require.LessOrEqual(t, len(modules), mostModules, strings.Join(modules, "\n"))
}
