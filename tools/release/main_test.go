package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPrepare(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.work", "go 1.26.0\n\nuse (\n\t.\n\t./part\n)\n")
	write("go.mod", "module "+own+"\n\ngo 1.26.0\n")
	write("part/go.mod", "module "+own+"/part\n\ngo 1.26.0\n\nrequire (\n\texample.com/other v1.2.3\n\t"+own+" v0.0.0\n\t"+own+"x "+
		"v0.0.0\n)\n\nreplace "+own+" => ..\n")
	if err := prepare(root, "v0.7.0"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "part", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	want := "module " + own + "/part\n\ngo 1.26.0\n\nrequire (\n\texample.com/other v1.2.3\n\t" + own + " v0.7.0\n\t" + own + "x v0.0.0\n)\n"
	if got := string(text); got != want {
		t.Errorf("go.mod of a release is\n%s\nwant\n%s", got, want)
	}
}

func TestRunRefuses(t *testing.T) {
	for _, args := range [][]string{nil, {"publish"}, {"-version", "0.1.0", "commit"}, {"-version", "v0.1.0-rc.1", "commit"}, {"-version"}, {"-version", "0.1.0", "check"}, {"-version", "v0.1.0-rc.1", "check"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%s: no error", strings.Join(args, " "))
		}
	}
}

func TestUpgrade(t *testing.T) {
	if got, err := nextPatch("v0.1.9"); got != "v0.1.10" || err != nil {
		t.Errorf("after v0.1.9 comes %s (%v)", got, err)
	}
	mod := "module example.com/user\n\nrequire (\n\texample.com/other v1.0.0\n\t" + own + " v0.1.1\n\t" + own + "/part v0.1.0\n)\n"
	if err := upgraded(mod, "v0.1.1"); err == nil || !strings.Contains(err.Error(), own+"/part v0.1.0") || strings.Contains(err.Error(), "example.com") {
		t.Errorf("%v does not name the part alone", err)
	}
}
