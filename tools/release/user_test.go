package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPublic(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a.go": "package jetpull", "a_test.go": "package jetpull", "broker/client/c.go": "package client", "broker/broker.go": "package broker",
		"broker/internal/work/w.go": "package work", "cmd/jetpull/main.go": "package main", "cmd/jetpull/internal/x/x.go": "package x",
		"test/servertest/s.go": "package servertest", "otelpull/o.go": "package otelpull",
		"bench/client/c.go": "package client", "tools/release/main.go": "package main", "only/only_test.go": "package only", "docs/x.md": "x",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := public(root)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{own, own + "/broker", own + "/broker/client", own + "/otelpull"}; !slices.Equal(got, want) {
		t.Errorf("public packages are %q, want %q", got, want)
	}
}

func TestUnneeded(t *testing.T) {
	service := own + "/internal/service"
	natsembed := user{
		own + "/natsembed", "require " + own + "/natsembed v0.1.0\n", own + " v0.1.0/go.mod h1:x\n" + own + "/natsembed v0.1.0 h1:x\n",
		[]string{own + "/natsembed"},
	}
	root := user{own, "require " + own + " v0.1.0\n", own + " v0.1.0 h1:x\n", []string{own}}
	if err := unneeded([]user{root, natsembed}); err != nil {
		t.Errorf("modules of public packages: %v", err)
	}
	inSum := natsembed
	inSum.sum += service + " v0.1.0/go.mod h1:x\n"
	inMod := natsembed
	inMod.mod += "require " + service + " v0.1.0 // indirect\n"
	broker := user{own + "/broker/client", "", service + " v0.1.0/go.mod h1:x\n", []string{own + "/broker"}}
	console := user{own + "/console", "", service + " v0.1.0/go.mod h1:x\n", []string{own + "/console", own + "/feed"}}
	for _, u := range []user{inSum, inMod} {
		err := unneeded([]user{root, u})
		if err == nil || !strings.Contains(err.Error(), u.pkg) || !strings.Contains(err.Error(), service) {
			t.Errorf("%+v: %v does not name the package and the module", u, err)
		}
	}
	if err := unneeded([]user{root, broker, console}); err != nil {
		t.Errorf("go.sum of a user of the broker, and of one of the console: %v", err)
	}
	broker.mod = "require " + service + " v0.1.0 // indirect\n"
	if err := unneeded([]user{root, broker}); err == nil {
		t.Error("go.mod of a user of the broker asks for internal/service: no error")
	}
}
