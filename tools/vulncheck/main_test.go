package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each end of a check has a status and a line of its own.
func TestRun(t *testing.T) {
	database := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/index/db.json" {
			http.NotFound(w, r)
		}
	}))
	defer database.Close()
	away := httptest.NewServer(nil)
	away.Close()
	for _, c := range []struct {
		name, database string
		exits          []int // of govulncheck, in a module each
		status         int
		want           string
	}{
		{"clean", database.URL, []int{0, 0}, clean, "nothing known to be vulnerable is called in 2 modules"},
		{"vulnerable", database.URL, []int{0, 3, 0}, vulnerable, "VULNERABLE"},
		{"a module that does not compile", database.URL, []int{3, 1}, failed, "FAILED"},
		{"no connection", away.URL, []int{0}, notChecked, "NOT CHECKED: the database " + away.URL},
		{"no database", database.URL + "/other", []int{0}, notChecked, "404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			program := filepath.Join(dir, "govulncheck")
			if err := os.WriteFile(program, []byte("#!/bin/sh\nexit $(cat exit)\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			var modules []string
			for i, exit := range c.exits {
				module := filepath.Join(dir, fmt.Sprint(i))
				if err := os.Mkdir(module, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(module, "exit"), []byte(fmt.Sprint(exit)), 0o600); err != nil {
					t.Fatal(err)
				}
				modules = append(modules, module)
			}
			var out strings.Builder
			if status := run(t.Context(), &out, program, c.database, modules); status != c.status || !strings.Contains(out.String(), c.want) {
				t.Errorf("status %d, want %d, and %q in:\n%s", status, c.status, c.want, out.String())
			}
		})
	}
}
