package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The document names the test's program, Go's standard library and every module of the program, each with its own ID.
func TestRun(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "x.spdx.json")
	if err := run([]string{"v0.7.0", "1700000000", out, program}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		SPDXVersion, SPDXID string
		CreationInfo        struct{ Created string }
		Packages            []struct{ SPDXID, Name, VersionInfo, DownloadLocation string }
		Relationships       []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string }
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.SPDXVersion != "SPDX-2.3" || doc.CreationInfo.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("the document is %s of %s", doc.SPDXVersion, doc.CreationInfo.Created)
	}
	ids := map[string]bool{doc.SPDXID: true}
	for _, p := range doc.Packages {
		if ids[p.SPDXID] || !regexp.MustCompile(`^SPDXRef-[a-zA-Z0-9.-]+$`).MatchString(p.SPDXID) {
			t.Errorf("%s has the ID %s, which is no ID or not its own", p.Name, p.SPDXID)
		}
		ids[p.SPDXID] = true
		if p.Name == "" || p.VersionInfo == "" || p.DownloadLocation == "" {
			t.Errorf("%+v lacks a field that SPDX requires", p)
		}
	}
	for _, r := range doc.Relationships {
		if !ids[r.SPDXElementID] || !ids[r.RelatedSPDXElement] {
			t.Errorf("%+v names an element that is not there", r)
		}
	}
	if first := doc.Relationships[0]; doc.SPDXID != "SPDXRef-DOCUMENT" || first.SPDXElementID != doc.SPDXID || first.RelationshipType != "DESCRIBES" {
		t.Errorf("%s does not describe the program: %+v", doc.SPDXID, first)
	}
	if doc.Packages[0].VersionInfo != "0.7.0" || doc.Packages[1].Name != "stdlib" {
		t.Errorf("the first packages are %+v", doc.Packages[:2])
	}
}

func TestRunRefuses(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"Unix seconds": {"v1.0.0", "today", "x", text},
		"one program":  {"v1.0.0", "1", "x"},
		"go build":     {"v1.0.0", "1", "x", text},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v does not say %q", args, err, want)
		}
	}
}
