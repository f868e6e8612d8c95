package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var day = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// A release of the tree has commits and tags, and pushes nothing. The first commit is for main, and keeps the replace directives.
func TestCommit(t *testing.T) {
	const root = "../.."
	repo := t.TempDir()
	for _, name := range slices.Concat([]string{"go.work", "CHANGELOG.md", "deploy/helm/jetpull/Chart.yaml"},
		[]string{"sdk/typescript/package.json", "sdk/python/pyproject.toml"}) {
		copyFile(t, filepath.Join(root, name), filepath.Join(repo, name))
	}
	dirs, err := folders(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		copyFile(t, filepath.Join(root, dir, "go.mod"), filepath.Join(repo, dir, "go.mod"))
	}
	t.Chdir(repo)
	for name, value := range map[string]string{
		"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com",
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_SYSTEM": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	git("init", "--quiet", "--initial-branch", "main")
	git("add", ".")
	if err := commit(t.Context(), "v0.2.0", day); err == nil || !strings.Contains(err.Error(), "not committed") {
		t.Fatalf("with changes: %v", err)
	}
	git("commit", "--quiet", "--message", "all")
	if err := commit(t.Context(), "v0.2.0", day); err != nil {
		t.Fatal(err)
	}
	if tags := strings.Fields(git("tag")); len(tags) != len(dirs) || !slices.Contains(tags, "v0.2.0") || !slices.Contains(tags, "cmd/jetpull/v0.2.0") {
		t.Errorf("tags are %v", tags)
	}
	for at, want := range map[string]bool{"release-v0.2.0~1": true, "v0.2.0": false} {
		if has := strings.Contains(git("show", at+":broker/go.mod"), "replace"); has != want {
			t.Errorf("go.mod of %s has replace directives: %v", at, has)
		}
		for name, text := range map[string]string{
			"deploy/helm/jetpull/Chart.yaml": "\nversion: 0.2.0\nappVersion: v0.2.0\n", "sdk/typescript/package.json": `"version": "0.2.0"`,
			"sdk/python/pyproject.toml": "\nversion = \"0.2.0\"\n", "CHANGELOG.md": "\n## [0.2.0] - 2026-12-01\n",
		} {
			if !strings.Contains(git("show", at+":"+name), text) {
				t.Errorf("%s of %s has no %q", name, at, text)
			}
		}
	}
	if err := commit(t.Context(), "v0.2.0", day); err == nil {
		t.Error("the version could be released twice")
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDated(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a version": {
			"# C\n\n## [Unreleased]\n\n### Added\n\n- A.\n", "# C\n\n## [Unreleased]\n\n## [0.1.0] - 2026-12-01\n\n### Added\n\n- A.\n\n" +
				"[0.1.0]: https://github.com/jetpull/jetpull/releases/tag/v0.1.0\n",
		},
		"the first": {
			"## [Unreleased]\n\n- A.\n\n## [0.1.0]\n\n- B.\n", "## [Unreleased]\n\nNothing yet.\n\n## Changes between builds before 0.1.0\n\n- A.\n\n" +
				"## [0.1.0] - 2026-12-01\n\n- B.\n",
		},
		"released":      {"## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n", ""},
		"no unreleased": {"## [0.1.0]\n", ""},
	} {
		got, err := dated(c.text, "0.1.0", day)
		if want := strings.ReplaceAll(c.want, "\n\n[0.1.0]", "\n[0.1.0]"); got != want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
}
