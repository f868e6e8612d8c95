package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The file that the command embeds fits what it is built of.
func TestNoticesAreUpToDate(t *testing.T) {
	if err := run("../..", []string{"check"}); err != nil {
		t.Fatal(err)
	}
}

func TestRunRefuses(t *testing.T) {
	if err := run("../..", []string{"print"}); err == nil || !strings.Contains(err.Error(), "print") {
		t.Errorf("an unknown argument: %v", err)
	}
}

// module makes a module's folder with these files.
func module(t *testing.T, name string, files map[string]string, packages ...string) *holding {
	t.Helper()
	h := &holding{name: name, root: t.TempDir(), folders: map[string]bool{}}
	for file, text := range files {
		path := filepath.Join(h.root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range packages {
		h.folders[filepath.Join(h.root, p)] = true
	}
	return h
}

// A text is printed once, under all modules that have it, and a licence of a folder counts only where a package of it is held.
func TestNotices(t *testing.T) {
	text, err := notices([]*holding{
		module(t, "a v1", map[string]string{
			"LICENSE": "\nFree  \r\n", "license.go": "package a", "sub/deep/x.go": "", "sub/LICENSE.md": "Sub",
			"other/COPYING": "Other",
		}, "sub/deep"),
		module(t, "b v2", map[string]string{"LICENCE.txt": "Free", "NOTICE": "By B"}, "."),
	})
	if err != nil {
		t.Fatal(err)
	}
	rule := strings.Repeat("=", 80)
	under := func(names, text string) string {
		return "\n" + rule + "\n" + names + "\n" + rule + "\n\n" + text + "\n"
	}
	_, got, _ := strings.Cut(string(text), "\n\n")
	if want := "a v1\nb v2\n" + under("a v1\nb v2", "Free") + under("a v1", "Sub") + under("b v2", "By B"); got != want {
		t.Errorf("notices are\n%s\nwant\n%s", got, want)
	}
	if _, err := notices([]*holding{module(t, "c v3", map[string]string{"x.go": ""}, ".")}); err == nil || !strings.Contains(err.Error(), "c v3") {
		t.Errorf("a module without a licence: %v", err)
	}
}

func TestCompareNamesTheDifference(t *testing.T) {
	err := compare([]byte("Head\n\na v1\nb v1\n"), []byte("Head\n\na v1\nb v2\n"))
	if err == nil || !strings.Contains(err.Error(), "+ b v2\n- b v1") || !strings.Contains(err.Error(), "make licenses") {
		t.Errorf("%v does not name b, or what to do", err)
	}
}
