// Package workflows checks the security of the workflows in .github: permissions and pinned actions. It has tests only.
package workflows

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
)

func files(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("../../../.github/workflows/*.yml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no workflow: %v", err)
	}
	texts := map[string]string{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(b)
	}
	return texts
}

func TestActionlintFindsNothing(t *testing.T) {
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lint := func(name, text string) []*actionlint.Error {
		found, err := linter.Lint(name, []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for name, text := range files(t) {
		for _, e := range lint(name, text) {
			t.Error(e)
		}
		if len(lint(name, strings.Replace(text, "runs-on:", "run-on:", 1))) == 0 {
			t.Errorf("%s with run-on in place of runs-on: nothing found", name)
		}
	}
}

var (
	uses   = regexp.MustCompile(`(?m)^\s*-?\s*uses:\s*(.*)$`)
	pinned = regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
)

// A tag of an action can be moved, but a commit cannot. The token of a workflow may only read, unless a job declares what it writes.
func TestActionsArePinnedAndMayRead(t *testing.T) {
	for name, text := range files(t) {
		for _, u := range uses.FindAllStringSubmatch(text, -1) {
			if !pinned.MatchString(u[1]) {
				t.Errorf("%s: uses %s: name the commit by its 40 digits, and the version behind it: # v1.2.3", name, u[1])
			}
		}
		if !strings.Contains(text, "\npermissions: {contents: read}\n") {
			t.Errorf("%s: the workflow has no line: permissions: {contents: read}", name)
		}
		if regexp.MustCompile(`(?m)run:.*\$\{\{`).MatchString(text) {
			t.Errorf("%s: an expression is part of a shell command: pass it in env", name)
		}
		if strings.Count(text, "actions/checkout@") != strings.Count(text, "persist-credentials: false") {
			t.Errorf("%s: a checkout leaves the token in the tree: add persist-credentials: false", name)
		}
	}
}
