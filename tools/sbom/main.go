// Command sbom writes the software bill of materials of a Go program as an SPDX 2.3 document, from the build information in the program:
//
//	sbom -version 0.1.0 -o jetpull.spdx.json jetpull
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// own is the path of the root module and begins those of all others.
const own = "github.com/jetpull/jetpull"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	version := flags.String("version", "", "the version of the program and of our modules")
	created := flags.String("time", "", "the time of the document, in Unix seconds")
	out := flags.String("o", "", "the file to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(*created, 10, 64)
	if err != nil {
		return fmt.Errorf("-time %q is no number of Unix seconds: take that of the commit, git log -1 --format=%%ct", *created)
	}
	if *version == "" || *out == "" || flags.NArg() != 1 {
		return errors.New("give -version, -o and one program")
	}
	doc, err := describe(flags.Arg(0), strings.TrimPrefix(*version, "v"), time.Unix(seconds, 0))
	if err != nil {
		return err
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(doc); err != nil {
		return err
	}
	return os.WriteFile(*out, text.Bytes(), 0o644)
}

// The names are those of SPDX 2.3.
type (
	document struct {
		SPDXVersion   string         `json:"spdxVersion"`
		DataLicense   string         `json:"dataLicense"`
		SPDXID        string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		CreationInfo  creationInfo   `json:"creationInfo"`
		Packages      []spdxPackage  `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creationInfo struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		Name             string     `json:"name"`
		SPDXID           string     `json:"SPDXID"`
		Version          string     `json:"versionInfo"`
		DownloadLocation string     `json:"downloadLocation"`
		FilesAnalyzed    bool       `json:"filesAnalyzed"`
		Purpose          string     `json:"primaryPackagePurpose"`
		Declared         string     `json:"licenseDeclared"`
		Concluded        string     `json:"licenseConcluded"`
		Copyright        string     `json:"copyrightText"`
		Checksums        []checksum `json:"checksums,omitempty"`
		Comment          string     `json:"comment,omitempty"`
		Refs             []ref      `json:"externalRefs,omitempty"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	ref struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const (
	noAssertion = "NOASSERTION"
	documentID  = "SPDXRef-DOCUMENT"
	programID   = "SPDXRef-program"
)

// describe reads a program. Our own modules have its version, whatever the workspace says.
func describe(path, version string, created time.Time) (document, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return document{}, fmt.Errorf("%s: %w: give a program that go build has made", path, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return document{}, err
	}
	sum := sha256.Sum256(content)
	hash := hex.EncodeToString(sum[:])
	doc := document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: documentID, Name: filepath.Base(path) + "-" + version,
		Namespace:    "https://" + own + "/spdx/" + hash,
		CreationInfo: creationInfo{created.UTC().Format(time.RFC3339), []string{"Organization: jetpull", "Tool: jetpull-sbom"}},
		Packages: []spdxPackage{{
			Name: info.Path, SPDXID: programID, Version: version, DownloadLocation: "https://" + own, Purpose: "APPLICATION",
			Declared: "Apache-2.0", Concluded: "Apache-2.0", Copyright: noAssertion, Checksums: []checksum{{"SHA256", hash}},
		}},
		Relationships: []relationship{{documentID, "DESCRIBES", programID}},
	}
	modules := []*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for i, m := range append(modules, info.Deps...) {
		id := "SPDXRef-module-" + strconv.Itoa(i)
		if m.Replace != nil && m.Replace.Version != "" {
			m = m.Replace
		}
		p := spdxPackage{
			Name: m.Path, SPDXID: id, Version: m.Version, DownloadLocation: noAssertion, Purpose: "LIBRARY",
			Declared: noAssertion, Concluded: noAssertion, Copyright: noAssertion,
		}
		if m.Path == own || strings.HasPrefix(m.Path, own+"/") {
			p.Version, p.Declared, p.Concluded = "v"+version, "Apache-2.0", "Apache-2.0"
		} else if m.Sum != "" {
			// It is the sum of the module's file list, not of a file that could be downloaded.
			p.Comment = "go.sum: " + m.Sum
		}
		p.Refs = []ref{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + p.Name + "@" + p.Version}}
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, relationship{programID, "CONTAINS", id})
	}
	return doc, nil
}
