// Command sbom writes the software bill of materials of a Go program as an SPDX 2.3 document, from the build information in the program:
//
//	sbom 0.1.0 1700000000 jetpull.spdx.json jetpull
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// own is the path of the root module, and the prefix of those of all others.
const own = "github.com/jetpull/jetpull"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 4 {
		return errors.New("give a version, a time in Unix seconds, the file to write, and one program")
	}
	seconds, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return fmt.Errorf("%q is no number of Unix seconds: take that of the commit, git log -1 --format=%%ct", args[1])
	}
	doc, err := describe(args[3], strings.TrimPrefix(args[0], "v"), time.Unix(seconds, 0))
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(args[2], append(text, '\n'), 0o644)
}

const (
	noAssertion = "NOASSERTION"
	documentID  = "DOCUMENT"
	programID   = "program"
)

// describe returns the document for a program. Our own modules get the program's version, regardless of the workspace.
func describe(path, version string, created time.Time) (*spdx.Document, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: give a program that go build has made", path, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:])
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: documentID, DocumentName: filepath.Base(path) + "-" + version,
		DocumentNamespace: "https://" + own + "/spdx/" + hash,
		CreationInfo: &spdx.CreationInfo{Created: created.UTC().Format(time.RFC3339), Creators: []common.Creator{
			{CreatorType: "Organization", Creator: "jetpull"}, {CreatorType: "Tool", Creator: "jetpull-sbom"},
		}},
	}
	add := func(p *spdx.Package, from common.ElementID, relationship string) {
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{
			RefA: common.DocElementID{ElementRefID: from}, RefB: common.DocElementID{ElementRefID: p.PackageSPDXIdentifier}, Relationship: relationship,
		})
	}
	add(&spdx.Package{
		PackageName: info.Path, PackageSPDXIdentifier: programID, PackageVersion: version, PackageDownloadLocation: "https://" + own,
		PrimaryPackagePurpose: "APPLICATION", PackageLicenseDeclared: "Apache-2.0", PackageLicenseConcluded: "Apache-2.0",
		PackageCopyrightText: noAssertion,
		PackageChecksums:     []common.Checksum{{Algorithm: common.SHA256, Value: hash}},
	}, documentID, common.TypeRelationshipDescribe)
	modules := []*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for i, m := range append(modules, info.Deps...) {
		if m.Replace != nil && m.Replace.Version != "" {
			m = m.Replace
		}
		p := &spdx.Package{
			PackageName: m.Path, PackageSPDXIdentifier: common.ElementID("module-" + strconv.Itoa(i)), PackageVersion: m.Version,
			PackageDownloadLocation: noAssertion, PrimaryPackagePurpose: "LIBRARY", PackageLicenseDeclared: noAssertion,
			PackageLicenseConcluded: noAssertion, PackageCopyrightText: noAssertion,
		}
		if m.Path == own || strings.HasPrefix(m.Path, own+"/") {
			p.PackageVersion, p.PackageLicenseDeclared, p.PackageLicenseConcluded = "v"+version, "Apache-2.0", "Apache-2.0"
		} else if m.Sum != "" {
			// This is the hash of the module's file list, not of a file that could be downloaded.
			p.PackageComment = "go.sum: " + m.Sum
		}
		p.PackageExternalReferences = []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: "pkg:golang/" + p.PackageName + "@" + p.PackageVersion,
		}}
		add(p, programID, common.TypeRelationshipContains)
	}
	return doc, nil
}
