package scripts

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The file that the command embeds matches the modules of the command.
func TestNoticesAreUpToDate(t *testing.T) {
	dir := t.TempDir()
	if out, err := script(t, root, "$tools/licenses.sh "+dir); err != nil {
		t.Fatal(err, out)
	}
	committed := filepath.Join(root, "cmd/jetpull/internal/licenses")
	if out, err := script(t, root, "diff "+filepath.Join(dir, "licenses.txt")+" cmd/jetpull/internal/licenses/licenses.txt"); err != nil {
		t.Errorf("licenses.txt does not fit what the command is built of: run make licenses and commit the files\n%s", out)
	}
	file, err := os.Open(filepath.Join(committed, "licenses.txt.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(packed); err != nil || string(text) != read(t, committed, "licenses.txt") {
		t.Errorf("licenses.txt.gz is not licenses.txt: run make licenses and commit the files (%v)", err)
	}
}

// Each text is printed once, under the names of all files that contain it. A module without a licence is an error.
func TestNotices(t *testing.T) {
	dir := copied(t, "tools/licenses.sh")
	write(t, dir, "cmd/jetpull/main.go", "")
	write(t, dir, "console/thirdparty/LICENSE", "Page\n")
	write(t, dir, "goroot/LICENSE", "Free\n")
	write(t, dir, "goroot/PATENTS", "Patents\n")
	// This script replaces the go command. It vendors and lists two modules.
	write(t, dir, "bin/go", `#!/bin/sh
case $1 in
mod) mkdir -p "$6" && cp -R vendored/. "$6" ;;
list) printf 'a v1\nb/v2 v2\ngithub.com/jetpull/jetpull v0.0.0\n' ;;
env) echo "$PWD/goroot" ;;
esac
`)
	for name, text := range map[string]string{
		"a/LICENSE": "\nFree  \r\n", "a/license.go": "package a", "a/sub/LICENSE.md": "Sub\n", "b/v2/LICENCE.txt": "Free\n", "b/v2/NOTICE": "By B\n",
		"unused/LICENSE": "Test\n",
	} {
		write(t, dir, "vendored/"+name, text)
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	if out, err := script(t, dir, "tools/licenses.sh ."); err != nil {
		t.Fatal(err, out)
	}
	rule := strings.Repeat("=", 80)
	under := func(names, text string) string {
		return "\n" + rule + "\n" + names + "\n" + rule + "\n\n" + text + "\n"
	}
	_, got, _ := strings.Cut(read(t, dir, "licenses.txt"), "\n\n")
	if want := "Go standard library\nconsole/thirdparty\na v1\nb/v2 v2\n" + under("Go standard library/LICENSE\na/LICENSE\nb/v2/LICENCE.txt", "Free") +
		under("Go standard library/PATENTS", "Patents") + under("console/thirdparty/LICENSE", "Page") + under("a/sub/LICENSE.md", "Sub") +
		under("b/v2/NOTICE", "By B"); got != want {
		t.Errorf("notices are\n%s\nwant\n%s", got, want)
	}
	if err := os.RemoveAll(filepath.Join(dir, "vendored/b")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "vendored/b/v2/b.go", "package b")
	if out, err := script(t, dir, "tools/licenses.sh ."); err == nil || !strings.Contains(out, "no licence of b/v2") {
		t.Errorf("a module without a licence: %v\n%s", err, out)
	}
}
