// Package packaging checks a release that is built by .goreleaser.yaml: the command, its packages, and its bill of materials. It has
// tests only. They build the command for this platform; with -dist DIR they check the output of goreleaser.
package packaging

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

const (
	root = "../.."
	tag  = "v0.1.0"
)

var dist = flag.String("dist", "", "the folder that goreleaser has filled for the tag "+tag+"; empty: build the command and its packages here")

// release contains the files of a release for one platform.
type release struct {
	config  config.Project
	command string
	deb     string
	rpm     string
}

var temporary string

func TestMain(m *testing.M) {
	flag.Parse()
	var err error
	if temporary, err = os.MkdirTemp("", "jetpull-packaging-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(temporary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func released(t *testing.T) release {
	t.Helper()
	r, err := find()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var find = sync.OnceValues(func() (release, error) {
	project, err := config.Load(filepath.Join(root, ".goreleaser.yaml"))
	if err != nil {
		return release{}, fmt.Errorf(".goreleaser.yaml: %w", err)
	}
	if *dist == "" {
		return build(project)
	}
	r := release{config: project}
	for pattern, into := range map[string]*string{
		"jetpull_linux_" + runtime.GOARCH + "*/jetpull": &r.command, "*_" + runtime.GOARCH + ".deb": &r.deb, "*." + rpmArch() + ".rpm": &r.rpm,
	} {
		found, err := filepath.Glob(filepath.Join(*dist, pattern))
		if err != nil || len(found) != 1 {
			return release{}, fmt.Errorf("%s has %q for %s, want one file: run make release-snapshot again", *dist, found, pattern)
		}
		if *into, err = filepath.Abs(found[0]); err != nil {
			return release{}, err
		}
	}
	return r, nil
})

func rpmArch() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64"
	}
	return "x86_64"
}

// build builds the command and its packages for Linux, as goreleaser does.
func build(project config.Project) (release, error) {
	b := project.Builds[0]
	r := release{config: project, command: filepath.Join(temporary, "jetpull")}
	ldflags := strings.ReplaceAll(strings.Join(b.Ldflags, " "), "{{ .Tag }}", tag)
	cmd := exec.Command("go", slices.Concat([]string{"build"}, b.Flags,
		[]string{"-tags", strings.Join(b.Tags, ","), "-ldflags", ldflags, "-o", r.command, b.Main})...)
	cmd.Dir = root
	// The linker strips debugging information; other tests have compiled most packages without it.
	cmd.Env = append(append(os.Environ(), "GOFLAGS=-buildvcs=false -gcflags=all=-dwarf=false", "GOWORK=", "GOOS=linux"), b.Env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return r, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	p := project.NFPMs[0]
	contents := files.Contents{{Source: r.command, Destination: filepath.Join(p.Bindir, "jetpull"), FileInfo: &files.ContentFileInfo{Mode: 0o755}}}
	for _, c := range p.Contents {
		contents = append(contents, &files.Content{
			Source: filepath.Join(root, c.Source), Destination: c.Destination, Type: c.Type, FileInfo: &files.ContentFileInfo{Mode: c.FileInfo.Mode},
		})
	}
	for _, format := range p.Formats {
		packager, err := nfpm.Get(format)
		if err != nil {
			return r, err
		}
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: p.PackageName, Arch: runtime.GOARCH, Platform: "linux", Version: tag, Section: p.Section, Maintainer: p.Maintainer,
			Description: p.Description, Vendor: p.Vendor, Homepage: p.Homepage, License: p.License, MTime: time.Unix(0, 0),
			Overridables: nfpm.Overridables{Contents: contents},
		})
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return r, err
		}
		file, err := os.Create(filepath.Join(temporary, "jetpull."+format))
		if err != nil {
			return r, err
		}
		if err := packager.Package(info, file); err != nil {
			return r, fmt.Errorf("%s: %w", format, err)
		}
		if err := file.Close(); err != nil {
			return r, err
		}
	}
	r.deb, r.rpm = filepath.Join(temporary, "jetpull.deb"), filepath.Join(temporary, "jetpull.rpm")
	return r, nil
}
