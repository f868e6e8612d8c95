package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The project's own files are clean, and what is wrong with a file is told with its name.
func TestLint(t *testing.T) {
	const own = "../../deploy"
	if err := lint(own); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, text, wrong, want string }{
		{"Dockerfile", "USER 65532:65532", "USER", "USER requires"},
		{"Dockerfile", " AS build", " as build", "FromAsCasing"},
		{"compose.yaml", "depends_on:", "depends-on:", "depends-on"},
		{"kubernetes.yaml", "readinessProbe:", "readynessProbe:", "readynessProbe"},
		{"kubernetes.yaml", "kind: Service", "kind: Servise", "Servise"},
	} {
		dir := t.TempDir()
		for _, name := range []string{"Dockerfile", "compose.yaml", "kubernetes.yaml"} {
			raw, err := os.ReadFile(filepath.Join(own, name))
			if err != nil {
				t.Fatal(err)
			}
			text := string(raw)
			if name == c.file {
				if !strings.Contains(text, c.text) {
					t.Fatalf("%s has no %q", name, c.text)
				}
				text = strings.Replace(text, c.text, c.wrong, 1)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := lint(dir); err == nil || !strings.Contains(err.Error(), c.file) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %q: %v", c.file, c.wrong, err)
		}
	}
}
