// Package scripts tests the scripts of tools.
package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root = "../.."
	own  = "github.com/jetpull/jetpull"
)

// script runs shell code in a folder, with the path of tools in $tools, and returns its output.
func script(t *testing.T, dir, code string) (string, error) {
	t.Helper()
	path, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-c", "set -e; tools="+path+"; "+code)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// copied copies files of the tree into a new folder.
func copied(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, dir, name, string(text))
	}
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var stamped = []string{"go.work", "CHANGELOG.md", "deploy/helm/jetpull/Chart.yaml", "sdk/typescript/package.json", "sdk/python/pyproject.toml"}

// A release of the tree creates commits and tags, and pushes nothing. The first commit is for main, and keeps the replace directives.
func TestCommit(t *testing.T) {
	out, err := script(t, root, ". $tools/release.sh; modules")
	if err != nil {
		t.Fatal(err)
	}
	dirs := strings.Fields(out)
	names := slices.Clone(stamped)
	for _, dir := range dirs {
		names = append(names, filepath.Join(dir, "go.mod"))
	}
	repo := copied(t, names...)
	for name, value := range map[string]string{
		"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com",
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_SYSTEM": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	git := func(args string) string {
		t.Helper()
		out, err := script(t, repo, "git "+args)
		if err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
		return out
	}
	git("init --quiet --initial-branch main")
	git("add .")
	const commit = "$tools/release.sh commit v0.2.0"
	if out, err := script(t, repo, commit); err == nil || !strings.Contains(out, "not committed") {
		t.Fatalf("with changes: %v\n%s", err, out)
	}
	git("commit --quiet --message all")
	if out, err := script(t, repo, commit); err != nil || !strings.Contains(out, "\ngit push origin release-v0.2.0~1:main\ngit push origin bench/v0.2.0 ") {
		t.Fatalf("%v\n%s", err, out)
	}
	if tags := strings.Fields(git("tag")); len(tags) != len(dirs) || !slices.Contains(tags, "v0.2.0") || !slices.Contains(tags, "cmd/jetpull/v0.2.0") {
		t.Errorf("tags are %v", tags)
	}
	for at, want := range map[string]bool{"release-v0.2.0~1": true, "v0.2.0": false} {
		if has := strings.Contains(git("show "+at+":broker/go.mod"), "replace"); has != want {
			t.Errorf("go.mod of %s has replace directives: %v", at, has)
		}
		for name, form := range map[string]string{
			"deploy/helm/jetpull/Chart.yaml": `\nversion: 0.2.0\nappVersion: v0.2.0\n`, "sdk/typescript/package.json": `"version": "0.2.0"`,
			"sdk/python/pyproject.toml": `\nversion = "0.2.0"\n`, "CHANGELOG.md": `\n## \[0.2.0\] - \d{4}-\d\d-\d\d\n`,
		} {
			if !regexp.MustCompile(form).MatchString(git("show " + at + ":" + name)) {
				t.Errorf("%s of %s has no %q", name, at, form)
			}
		}
	}
	if out, err := script(t, repo, commit); err == nil {
		t.Errorf("the version could be released twice:\n%s", out)
	}
}

func TestStamp(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a version": {
			"# C\n\n## [Unreleased]\n\n### Added\n\n- A.\n", "# C\n\n## [Unreleased]\n\n## [0.1.0] - DAY\n\n### Added\n\n- A.\n" +
				"[0.1.0]: https://github.com/jetpull/jetpull/releases/tag/v0.1.0\n",
		},
		"the first": {
			"## [Unreleased]\n\n- A.\n\n## [0.1.0]\n\n- B.\n", "## [Unreleased]\n\nNothing yet.\n\n## Changes between builds before 0.1.0\n\n- A.\n\n" +
				"## [0.1.0] - DAY\n\n- B.\n",
		},
		"released":      {"## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n", ""},
		"no unreleased": {"## [0.1.0]\n", ""},
	} {
		dir := copied(t, stamped...)
		write(t, dir, "CHANGELOG.md", c.text)
		out, err := script(t, dir, ". $tools/release.sh; stamp v0.1.0")
		got := regexp.MustCompile(`\d{4}-\d\d-\d\d`).ReplaceAllString(read(t, dir, "CHANGELOG.md"), "DAY")
		if (err == nil) != (c.want != "") || c.want != "" && got != c.want {
			t.Errorf("%s: %v\n%s\n%s\nwant\n%s", name, err, out, got, c.want)
		}
	}
	dir := copied(t, stamped...)
	write(t, dir, "sdk/python/pyproject.toml", "name = \"jetpull\"\n")
	if out, err := script(t, dir, ". $tools/release.sh; stamp v0.1.0"); err == nil || !strings.Contains(out, "sdk/python/pyproject.toml: no line") {
		t.Errorf("a package without a version: %v\n%s", err, out)
	}
}

func TestPrepare(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "go.work", "go 1.26.0\n\nuse (\n\t.\n\t./part\n)\n")
	write(t, dir, "go.mod", "module "+own+"\n\ngo 1.26.0\n")
	write(t, dir, "part/go.mod", "module "+own+"/part\n\ngo 1.26.0\n\nrequire "+own+"/b v0.0.0\n\nrequire (\n\texample.com/other v1.2.3\n\t"+own+" v0.0.0\n\t"+
		own+"x v0.0.0 // indirect\n)\n\nreplace "+own+" => ..\n\nreplace (\n\t"+own+"/b => ../b\n)\n")
	if out, err := script(t, dir, ". $tools/release.sh; prepare v0.7.0"); err != nil {
		t.Fatal(err, out)
	}
	want := "module " + own + "/part\n\ngo 1.26.0\n\nrequire " + own + "/b v0.7.0\n\nrequire (\n\texample.com/other v1.2.3\n\t" + own + " v0.7.0\n\t" +
		own + "x v0.0.0 // indirect\n)\n"
	if got := read(t, dir, "part/go.mod"); got != want {
		t.Errorf("go.mod of a release is\n%s\nwant\n%s", got, want)
	}
}

func TestReleaseRefuses(t *testing.T) {
	for _, args := range []string{"", "publish v0.1.0", "commit 0.1.0", "commit v0.1.0-rc.1", "commit", "check v0.1", "check v0.1.0-rc.1", "commit v01.1.0"} {
		if out, err := script(t, root, "$tools/release.sh "+args); err == nil || !strings.HasPrefix(out, "release: ") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

func TestPublic(t *testing.T) {
	out, err := script(t, root, ". $tools/release.sh; public")
	if err != nil {
		t.Fatal(err, out)
	}
	got := strings.Fields(out)
	for _, name := range []string{"", "/broker", "/broker/client", "/natsembed/embedtest", "/otelpull", "/partition"} {
		if !slices.Contains(got, own+name) {
			t.Errorf("%s%s is public, and is not in %q", own, name, got)
		}
	}
	for _, name := range got {
		if regexp.MustCompile(`/internal(/|$)|^` + own + `/(test|bench|examples|cmd|tools)(/|$)`).MatchString(name) {
			t.Errorf("%s is not public", name)
		}
	}
}

// The module of a user must name only those of our modules from which its program is built, each at the next version.
func TestJudge(t *testing.T) {
	const service, next = own + "/internal/service", "v0.1.1"
	for name, c := range map[string]struct{ mod, sum, built, want string }{
		"modules of public packages":        {"require " + own + "/natsembed " + next + "\n", own + " v0.1.1/go.mod h1:x\n", own + "/natsembed", ""},
		"in go.sum":                         {"", own + " v0.1.1 h1:x\n" + service + " v0.1.1/go.mod h1:x\n", own, "go.sum has " + service + ","},
		"in go.mod":                         {"require " + own + " v0.1.1\nrequire " + service + " v0.1.1 // indirect\n", "", own, "go.mod asks for " + service + ","},
		"in go.sum of a user of the broker": {"", service + " v0.1.1/go.mod h1:x\n", own + "/broker", ""},
		"in go.mod of a user of the broker": {"require (\n\t" + service + " v0.1.1 // indirect\n)\n", "", own + "/broker", "go.mod asks for " + service + ","},
		"in go.sum of a user of the feed":   {"", service + " v0.1.1/go.mod h1:x\n", own + "/console\n" + own + "/feed", ""},
		"an old module": {
			"require (\n\texample.com/other v1.0.0\n\t" + own + " v0.1.1\n\t" + own + "/part v0.1.0\n)\n", "", own + "\n" + own + "/part",
			"go.mod does not ask for " + own + "/part v0.1.1",
		},
		"a longer version": {"require " + own + " v0.1.10\n", "", own, "go.mod does not ask for " + own + " v0.1.1"},
	} {
		dir := t.TempDir()
		write(t, dir, "root/go.mod", "module example.com/user\n\nrequire "+own+" "+next+"\n")
		write(t, dir, "root/go.sum", own+" v0.1.1 h1:x\n")
		write(t, dir, "root/built", own+"\n")
		write(t, dir, "user/go.mod", "module example.com/user\n\n"+c.mod)
		write(t, dir, "user/go.sum", c.sum)
		write(t, dir, "user/built", c.built+"\n")
		out, err := script(t, dir, ". $tools/release.sh; judge "+next+" root user")
		switch {
		case c.want == "" && (err != nil || out != ""):
			t.Errorf("%s: %v\n%s", name, err, out)
		case c.want != "" && (err == nil || !strings.HasPrefix(out, "user: "+c.want) || strings.Count(out, "\n") != 1):
			t.Errorf("%s: %v\n%s\nwant %q", name, err, out, c.want)
		}
	}
}
